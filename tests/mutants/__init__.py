"""Planted bugs, one of 31 parts of the table in each run of the tests."""
