"""Pipeline schedules: generated as lists of actions, checked, and simulated without devices."""
