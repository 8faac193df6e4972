"""The PostgreSQL store: one database, shared by any number of nodes."""

from semel.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
