"""Quotas of a principal."""
