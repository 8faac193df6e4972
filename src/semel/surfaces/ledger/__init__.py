"""The ledger: transactions in a chain of blocks for each organization and vault, with proofs."""
