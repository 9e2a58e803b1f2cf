"""Layers of ops, stages of layers."""
