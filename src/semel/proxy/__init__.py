"""`semel proxy`: an idempotency proxy; a request with an `Idempotency-Key` takes effect once, for any HTTP service."""
