"""Look-ups of writes, and their retries."""
