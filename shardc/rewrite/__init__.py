"""Rewriting helpers shared by several passes."""
