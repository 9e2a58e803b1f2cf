"""A step as flat lists of instructions, in order, for each process."""
