"""Whether a sequence can be cut into token slices that need no later slice."""
