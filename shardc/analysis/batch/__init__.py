"""Where the batch is, and what a microbatch sees of every value."""
