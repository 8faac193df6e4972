"""What events cost, counted and not timed."""
