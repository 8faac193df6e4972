"""Durable streams over HTTP, with idempotent producers and `Idempotency-Key`."""
