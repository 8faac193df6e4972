"""Semel makes every write happen exactly once, however often it is retried."""

__version__ = "0.1.0"
