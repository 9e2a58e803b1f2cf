"""Thin sugar over jax.extend.mlir: contexts, walking, attributes, types, passes."""
