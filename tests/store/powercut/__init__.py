"""Power cuts under the real server: see `__main__`."""
