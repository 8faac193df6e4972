"""That all stores give the same answers and hold the same rows."""
