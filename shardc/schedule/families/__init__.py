"""One file per mechanism; each lists its `FAMILIES`, and the registry finds them."""
