"""A store by its URL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import parse_qs

from semel.store.memory import MemoryStore
from semel.store.migrations import Migration
from semel.store.protocol import AnyTable, Store, StoreError
from semel.store.sqlite import SqliteStore


def open_store(
    url: str, tables: Sequence[AnyTable], migrations: Sequence[Migration], wall_ms: Callable[[], int]
) -> Store:
    """`sqlite:FOLDER` (with `?vfs=NAME` for a file system of one's own) or `memory:`."""
    scheme, _, rest = url.partition(":")
    if scheme == "memory":
        return MemoryStore(tables, wall_ms)
    if scheme == "sqlite" and rest:
        folder, _, query = rest.partition("?")
        vfs = parse_qs(query).get("vfs", [None])[0]
        return SqliteStore(Path(folder.removeprefix("//")), tables, migrations, wall_ms, vfs)
    raise StoreError(f"There is no store {url!r}: use sqlite:FOLDER or memory:.")
