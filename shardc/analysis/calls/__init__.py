"""Facts about functions that stay calls."""
