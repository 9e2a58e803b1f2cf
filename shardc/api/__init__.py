"""The Python API: `shardc.jit`, its stages, its caches."""
