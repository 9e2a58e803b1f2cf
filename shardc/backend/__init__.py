"""Stage programs handed to XLA through JAX, and what it compiled."""
