"""What layers cost, and stages put together of them."""
