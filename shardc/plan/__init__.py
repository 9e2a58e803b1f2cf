"""What the planner decides and the runtime runs: frozen data, JSON both ways."""
