"""Servers and workers that are killed under a load of jobs."""
