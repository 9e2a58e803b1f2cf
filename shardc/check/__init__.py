"""Whether a plan computes what its program computes on one device."""
