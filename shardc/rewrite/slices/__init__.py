"""Stage functions written anew for each token slice."""
