"""What the axes of a planned mesh do, in the field's terms."""
