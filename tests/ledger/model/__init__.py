"""The rules of the ledger against a plain model of them."""
