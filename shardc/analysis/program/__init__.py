"""Facts about any function: who uses what, cost, lifetime, state."""
