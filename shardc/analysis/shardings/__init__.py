"""The sharding problem of a stage and what a solution means."""
