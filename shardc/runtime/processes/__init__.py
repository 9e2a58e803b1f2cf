"""A step over several processes: messages between them, and the watch over their progress."""
