"""Messages between device groups of different processes."""
