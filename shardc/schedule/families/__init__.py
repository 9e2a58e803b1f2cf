"""One file per mechanism; each lists its `FAMILIES`, which the registry collects."""
