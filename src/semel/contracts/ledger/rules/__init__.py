"""The rules of the ledger: pure decisions over loaded rows."""
