"""A pipeline given by hand: what it says holds, what it leaves out is planned."""
