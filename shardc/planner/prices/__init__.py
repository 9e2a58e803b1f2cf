"""Prices of layers, and of stages composed of them."""
