"""Runs a module in each of its intermediate forms, without the outliner or the runtime."""
