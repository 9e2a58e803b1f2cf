"""What plans and steps report in Python."""
