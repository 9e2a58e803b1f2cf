"""A schedule as text and as a trace: written, drawn, read."""
