"""Wire formats of deltas: JSON and query strings to values, and back."""
