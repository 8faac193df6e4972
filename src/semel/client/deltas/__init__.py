"""Deltas in the SDK: a replica in a local file, which works offline and syncs with the server."""
