"""Modules of the jobs surface in this process, without a server."""
