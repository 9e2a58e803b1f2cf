"""`shardc.jit` in a job of several processes: one plan, batch rows from each."""
