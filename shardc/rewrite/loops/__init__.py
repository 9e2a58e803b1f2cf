"""Loops taken apart."""
