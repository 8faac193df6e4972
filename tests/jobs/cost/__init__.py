"""The cost of plain job calls, counted and not timed."""
