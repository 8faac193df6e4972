"""Deltas in the SDK: a replica in a file of its own, which goes on without the server and catches up with it."""
