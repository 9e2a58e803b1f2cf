"""Roles of the axes of a planned mesh: data, tensor, expert, sequence parallelism ..."""
