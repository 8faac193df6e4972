"""Modules of the events surface in this process, without a server."""
