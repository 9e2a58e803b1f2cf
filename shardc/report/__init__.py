"""What there is to say of a plan, as data and as text."""
