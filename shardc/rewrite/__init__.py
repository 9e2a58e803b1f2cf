"""Rewriting helpers that several passes share."""
