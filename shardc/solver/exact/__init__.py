"""Elimination, prices on memory, the certificate."""
