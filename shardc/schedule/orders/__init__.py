"""Ways to order the tasks of lanes that several mechanisms share."""
