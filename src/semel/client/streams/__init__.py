"""Streams: create, append, read, follow and close append-only logs."""
