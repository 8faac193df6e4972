"""The rules of the ledger in this process, without a server."""
