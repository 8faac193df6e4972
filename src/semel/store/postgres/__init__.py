"""The PostgreSQL store: one database, shared by any number of nodes."""

from semel.store.postgres.store import PgStore

__all__ = ["PgStore"]
