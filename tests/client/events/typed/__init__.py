"""Programs as users write them, for checkers of types."""
