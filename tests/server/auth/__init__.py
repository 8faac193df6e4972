"""Principals, tokens, JWTs, rotation and reload."""
