"""The hash table as a protocol of its own, and its questions for the protocols that stand on it."""
