"""Ways to order the tasks of lanes, shared by several mechanisms."""
