"""Wire formats of the ledger: values to values."""
