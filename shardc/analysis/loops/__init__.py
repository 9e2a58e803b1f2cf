"""Facts about loops: iterations, rows of stacked arrays."""
