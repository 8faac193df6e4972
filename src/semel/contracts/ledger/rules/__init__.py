"""What the ledger decides: pure, over loaded rows."""
