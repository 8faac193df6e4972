"""The store for many nodes: one PostgreSQL database, any number of servers over it."""

from semel.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
