"""The description of a plan, as data and as text."""
