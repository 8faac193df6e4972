"""`semel proxy`: a request with an `Idempotency-Key` takes effect once, in front of any service in any language."""
