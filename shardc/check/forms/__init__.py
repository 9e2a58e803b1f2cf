"""Runs a module in every form that it has on its way, without the outliner or the runtime."""
