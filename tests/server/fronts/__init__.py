"""Tests of front processes."""
