"""A store by its URL."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import parse_qs

from semel.store.memory import MemoryStore
from semel.store.migrations import Migration
from semel.store.protocol import AnyTable, Store, StoreError
from semel.store.sqlite import SqliteStore

POSTGRES = ("postgresql", "postgres")


def open_store(
    url: str, tables: Sequence[AnyTable], migrations: Sequence[Migration], wall_ms: Callable[[], int]
) -> Store:
    """`sqlite:FOLDER` (with `?vfs=NAME` for a file system of one's own), `postgresql://...` or `memory:`."""
    scheme, _, rest = url.partition(":")
    if scheme == "memory":
        return MemoryStore(tables, wall_ms)
    if scheme == "sqlite" and rest:
        folder, _, query = rest.partition("?")
        vfs = parse_qs(query).get("vfs", [None])[0]
        return SqliteStore(Path(folder.removeprefix("//")), tables, migrations, wall_ms, vfs)
    if scheme in POSTGRES:
        return _postgres(url, tables, migrations)
    raise StoreError(f"There is no store {shown(url)!r}: use sqlite:FOLDER, postgresql://... or memory:.")


def shown(url: str) -> str:
    """A store URL without the secrets that may stand in it, for people and logs."""
    return re.sub(r"//[^/]*@", "//", url.partition("?")[0]) if "//" in url else url


def _postgres(url: str, tables: Sequence[AnyTable], migrations: Sequence[Migration]) -> Store:
    try:
        from semel.store.postgres import PostgresStore  # noqa: PLC0415 - an extra
        from semel.store.postgres.address import parse  # noqa: PLC0415
    except ImportError as error:
        raise StoreError("PostgreSQL needs a driver: install it with pip install 'semel[postgres]'.") from error
    return PostgresStore(parse(url), tables, migrations)
