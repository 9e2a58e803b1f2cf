"""Elimination, memory prices, and the CP-SAT certificate."""
