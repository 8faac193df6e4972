"""Tests of `semel.testing`: it finds what is wrong, and finds nothing in what is right."""
