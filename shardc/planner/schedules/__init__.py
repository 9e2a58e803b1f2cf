"""Chooses the schedule of a pipeline whose stages are planned."""
