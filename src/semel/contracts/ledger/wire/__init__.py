"""What the ledger looks like on the wire: values to values."""
