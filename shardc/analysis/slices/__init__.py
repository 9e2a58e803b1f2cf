"""Whether a sequence can be cut into token slices, each of which needs only those up to itself."""
