"""The embedded SQLite store: one file, one writer."""

from semel.store.sqlite.store import SqliteFileStore

__all__ = ["SqliteFileStore"]
