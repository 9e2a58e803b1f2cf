"""JAX functions and StableHLO files in, one StableHLO module in a context of ours out."""
