"""The planner's model of time and bytes; docs/costs.md describes it."""
