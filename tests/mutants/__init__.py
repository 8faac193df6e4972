"""Planted bugs, an eleventh of the table in each run of the tests."""
