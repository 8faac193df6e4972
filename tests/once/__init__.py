"""Tests of `semel.once`, on every driver."""
