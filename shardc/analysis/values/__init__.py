"""Elements of values that the program alone determines: exact, or unknown."""
