"""`semel proxy`: an idempotency proxy for any HTTP service; a request with an `Idempotency-Key` takes effect once."""
