"""Planted bugs, a seventh of the table in each run of the tests."""
