"""Authentication and access: principals, tokens, JWTs, and the rule that admits a request."""
