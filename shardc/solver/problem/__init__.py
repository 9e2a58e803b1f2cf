"""The sharding problem in numbers, and its exact reductions."""
