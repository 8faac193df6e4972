"""The embedded SQLite store: one file, one writer."""

from semel.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
