"""What a step is given: placed where programs read it, each donated buffer once."""
