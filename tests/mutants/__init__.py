"""Planted bugs: each breaks a promise, and a test must notice."""
