"""Finds the plan of a prepared program: cached, searched for, or written by hand."""
