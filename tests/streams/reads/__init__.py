"""Reads: the tail cache against the store, what live readers share, and the cost of a read."""
