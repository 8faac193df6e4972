"""The ledger over gRPC: conversions, statuses, reflection, and the listener as a whole."""
