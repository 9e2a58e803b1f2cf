"""JAX functions and StableHLO files in, one StableHLO module out."""
