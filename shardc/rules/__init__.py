"""What an op allows: factors that split, sums that stay partial."""
