"""What a client of the deltas sees: pushes, pulls and everything around them, over HTTP."""
