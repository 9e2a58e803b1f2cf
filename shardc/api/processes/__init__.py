"""What `shardc.jit` does where a job has several processes: one plan, rows from each."""
