"""The sharding problem of a stage, and what a solution of it means."""
