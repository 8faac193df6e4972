"""What pushes and pulls cost, counted and not timed."""
