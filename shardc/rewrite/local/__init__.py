"""Ops on the part of a device."""
