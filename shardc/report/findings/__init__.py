"""Avoidable costs of a plan, each with its price."""
