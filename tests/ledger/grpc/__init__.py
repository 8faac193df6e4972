"""The ledger over gRPC: conversions, statuses, and the listener as a whole."""
