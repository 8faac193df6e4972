"""Planted bugs, a fifth of the table in each run of the tests."""
