"""What plain appends cost, counted and not timed."""
