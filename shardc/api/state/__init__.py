"""The state outside a step: its placement under a plan, and moving it there."""
