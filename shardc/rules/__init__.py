"""What an op allows: which factors may be split, which sums may stay partial."""
