"""Writes stage functions for each token slice."""
