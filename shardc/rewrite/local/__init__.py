"""Ops on one device's part of their operands."""
