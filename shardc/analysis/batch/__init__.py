"""Where the batch is, and what a microbatch holds of every value."""
