"""Drivers of databases, each found by the connection or session that the caller has; none is imported before that."""
