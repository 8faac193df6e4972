"""The stores: one conformance suite for all of them, and what is particular to each."""
