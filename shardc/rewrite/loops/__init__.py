"""Loop transformations: fission, strip mining, cutting by iteration range."""
