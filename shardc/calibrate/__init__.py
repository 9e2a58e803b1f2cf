"""Measures the devices that are there, and writes what was found as a cluster file."""
