"""Forks under kills: random forks, appends and deletes against a model, and what is left in the store."""
