"""Stores of rows: the protocol, and its implementations for memory, SQLite and PostgreSQL."""
