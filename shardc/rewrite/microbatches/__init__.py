"""Ops on one microbatch's part of the batch."""
