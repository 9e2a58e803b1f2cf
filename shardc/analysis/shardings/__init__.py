"""The sharding problem of a stage, and the interpretation of its solutions."""
