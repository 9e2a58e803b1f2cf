"""A step as flat lists of instructions: what each process does, in which order."""
