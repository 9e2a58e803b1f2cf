"""Rewriting that passes share."""
