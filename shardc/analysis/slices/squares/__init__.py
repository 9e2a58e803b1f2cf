"""What squares of queries and keys hold where a key comes after its query, and on what premises."""
