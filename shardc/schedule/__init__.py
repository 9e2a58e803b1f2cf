"""Pipeline schedules as data: generated, checked, simulated without devices."""
