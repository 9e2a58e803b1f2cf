"""Search and bounds for problems too wide to eliminate."""
