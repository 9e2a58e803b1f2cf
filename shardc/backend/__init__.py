"""Compilation of stage programs by XLA through JAX."""
