"""The embedded store: one SQLite file, one writer."""

from semel.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
