"""What values are, where the program alone says so: exact, or nothing."""
