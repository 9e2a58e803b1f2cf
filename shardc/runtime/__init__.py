"""Runs a step: the lanes of the schedule, on ordinary `jax.Array`s."""
