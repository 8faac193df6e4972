"""Modules of the deltas surface in this process, without a server."""
