"""The state of a step outside of it: where a plan wants it, and how it gets there."""
