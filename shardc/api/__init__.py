"""The doors of Python: `shardc.jit`, its stages, its caches."""
