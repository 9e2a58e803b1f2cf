"""The record saved with a plan for its readers."""
