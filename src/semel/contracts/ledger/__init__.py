"""Ledger: sequenced transactions in hash-chained blocks, with proofs."""
