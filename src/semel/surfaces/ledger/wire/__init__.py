"""Wire formats of the ledger: JSON and URLs to values, and back."""
