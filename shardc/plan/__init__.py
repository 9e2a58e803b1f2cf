"""The planner's decisions, which the runtime executes: frozen data, JSON both ways."""
