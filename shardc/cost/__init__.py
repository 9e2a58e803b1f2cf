"""What the planner believes about time and bytes; docs/costs.md describes it."""
