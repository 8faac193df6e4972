"""Transactions whose heads are known by their bytes, beside the full path."""
