"""What a client of the ledger is promised, over HTTP and gRPC."""
