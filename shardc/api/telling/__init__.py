"""What plans and steps tell of themselves in Python."""
