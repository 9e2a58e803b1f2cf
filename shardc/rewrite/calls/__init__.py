"""Functions and their calls."""
