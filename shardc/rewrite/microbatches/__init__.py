"""Ops on one microbatch."""
