"""Authentication and access: principals, tokens, JWTs, and the check of every request."""
