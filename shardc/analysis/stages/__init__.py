"""Which stage an op belongs to."""
