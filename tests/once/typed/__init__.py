"""A program of a user, for checkers of types."""
