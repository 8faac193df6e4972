"""What transactions of the ledger cost, counted and not timed."""
