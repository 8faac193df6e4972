"""Traces from the caller to the commit, as a collector receives them."""
