"""Checks that what runs computes what the program says: pass by pass, plan by plan."""
