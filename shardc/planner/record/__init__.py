"""What is recorded with a plan for those who read it."""
