"""Measures the available devices and writes the result as a cluster file."""
