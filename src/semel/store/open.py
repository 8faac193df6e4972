"""Opens a store by its URL: to serve, read-only beside a running server, or to inspect it without changing it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from semel.kernel.namespace import WITHIN, folder_of, is_name
from semel.kernel.shown_url import shown_scheme, shown_url
from semel.store.memory import MemoryStore
from semel.store.migrations import Migration, pending
from semel.store.protocol import (
    AnyTable,
    PersistentStore,
    Snapshot,
    Store,
    StoreError,
    StoreInspection,
    StoreMovedError,
)
from semel.store.sqlite import SqliteFileStore
from semel.store.sqlite.log_directory import INDEX_BYTES, index_keys_of
from semel.store.sqlite.read_only import file_flaws as sqlite_flaws
from semel.store.sqlite.read_only import inspect as sqlite_glimpse
from semel.store.sqlite.read_only import read_snapshot as sqlite_beside
from semel.store.sqlite.store import FILE_NAME

if TYPE_CHECKING:
    from semel.store.postgres.address import PgAddress

POSTGRES = ("postgresql", "postgres")


def open_store(
    url: str,
    tables: Sequence[AnyTable],
    migrations: Sequence[Migration],
    wall_ms: Callable[[], int],
    *,
    index_bytes: int = INDEX_BYTES,
) -> Store:
    """Open `sqlite:FOLDER` (`?vfs=NAME` names a custom SQLite file system), `postgresql://...` or `memory:`.

    `index_bytes` is the memory that SQLite's index of keys may take. A store that is marked as moved is refused.
    """
    if url.partition(":")[0] == "memory":
        return MemoryStore(tables, wall_ms)
    return open_persistent(url, tables, migrations, wall_ms, index_bytes=index_bytes)


def open_persistent(
    url: str,
    tables: Sequence[AnyTable],
    migrations: Sequence[Migration],
    wall_ms: Callable[[], int],
    *,
    index_bytes: int = INDEX_BYTES,
    may_be_moved: bool = False,
) -> PersistentStore:
    """As `open_store`, but for a memory store; with `may_be_moved` also a store that is marked as moved."""
    scheme, _, rest = url.partition(":")
    if scheme == "sqlite" and rest:
        folder, vfs = _folder(url)
        index_keys = index_keys_of(index_bytes)
        return SqliteFileStore(
            folder, tables, migrations, wall_ms, vfs, index_keys=index_keys, may_be_moved=may_be_moved
        )
    if scheme in POSTGRES:
        address = _address(url)
        from semel.store.postgres import PgStore  # noqa: PLC0415 - an extra

        return PgStore(address, tables, migrations, may_be_moved=may_be_moved)
    raise _unknown(url)


def inspect_store(url: str, tables: Sequence[AnyTable]) -> StoreInspection:
    """Inspect a store without opening or changing it, and find a table with rows among these tables."""
    scheme, _, rest = url.partition(":")
    if scheme == "memory":
        return StoreInspection(0, None)
    if scheme == "sqlite" and rest:
        folder, vfs = _folder(url)
        return sqlite_glimpse(folder, tables, vfs)
    if scheme in POSTGRES:
        address = _address(url)
        from semel.store.postgres.read_only import inspect  # noqa: PLC0415 - an extra

        return inspect(address, tables)
    raise _unknown(url)


def refuse_moved(url: str) -> StoreInspection:
    """Raise `StoreMovedError` if the store is marked as moved; returns its facts."""
    there = inspect_store(url, ())
    if there.is_moved:
        raise StoreMovedError(shown(url))
    return there


@contextmanager
def open_read_only(
    url: str, tables: Sequence[AnyTable], migrations: Sequence[Migration], wall_ms: Callable[[], int]
) -> Iterator[Snapshot]:
    """One snapshot of a store that servers may be using: nothing is locked, created, migrated or written.

    Data of another schema version is refused. If a newer server starts and migrates meanwhile, its additions are not
    read.
    """
    version = inspect_store(url, ()).version
    if version == 0:
        raise StoreError(f"There is no data in {shown(url)}.")
    if pending(migrations, version, shown(url)):
        raise StoreError(f"{shown(url)} is of the older schema version {version}: run `semel migrate` on it first.")
    with _read_only(url, tables, wall_ms) as snapshot:
        yield snapshot


def _read_only(url: str, tables: Sequence[AnyTable], wall_ms: Callable[[], int]) -> AbstractContextManager[Snapshot]:
    scheme = url.partition(":")[0]
    if scheme == "sqlite":
        folder, vfs = _folder(url)
        return sqlite_beside(folder, tables, wall_ms, vfs)
    address = _address(url)
    from semel.store.postgres.read_only import read_snapshot  # noqa: PLC0415 - an extra

    return read_snapshot(address, tables)


def file_flaws(url: str, tables: Sequence[AnyTable]) -> Iterator[str]:
    """What the database itself finds wrong with its files; a server may be using them. Nothing is changed.

    SQLite checks its whole file and the indexes of keys. PostgreSQL checks its indexes if the database has the
    extension amcheck.
    """
    scheme = url.partition(":")[0]
    if scheme == "sqlite":
        folder, vfs = _folder(url)
        return sqlite_flaws(folder, tables, vfs)
    address = _address(url)
    from semel.store.postgres.read_only import index_flaws  # noqa: PLC0415 - an extra

    return index_flaws(address, tables)


def place_of(url: str) -> tuple[str, ...]:
    """The location of the rows: equal for two spellings of one location, as far as the URLs show it."""
    scheme, _, rest = url.partition(":")
    if scheme == "sqlite" and rest:
        return scheme, str(_folder(url)[0].resolve())
    if scheme in POSTGRES:
        return POSTGRES[0], *_address(url).place
    if scheme == "memory":
        return (scheme,)
    raise _unknown(url)


def refuse_shared_locks(urls: Sequence[str]) -> None:
    """Raise `StoreError` if two of these stores of one database would take the same locks: about one in 100,000 lists
    of 64 names has such a pair.
    """
    if urls[0].partition(":")[0] not in POSTGRES:
        return
    schemas = [_address(url).schema for url in urls]
    from semel.store.postgres.locks import clash_of  # noqa: PLC0415 - an extra

    clash = clash_of(schemas)
    if clash is not None:
        raise StoreError(f"The schemas {clash[0]} and {clash[1]} would share locks: give one of them another name.")


def namespaces_at(url: str) -> list[str]:
    """The names of the namespaces that have a store beside this one of the default namespace, in order."""
    scheme = url.partition(":")[0]
    if scheme == "sqlite":
        found = [path.parent.name for path in _folder(url)[0].glob(f"{WITHIN}*/{FILE_NAME}")]
    elif scheme in POSTGRES:
        address = _address(url)
        from semel.store.postgres.read_only import schemas_below  # noqa: PLC0415 - an extra

        found = [name.removeprefix(f"{address.schema}_") for name in schemas_below(address, WITHIN)]
    else:
        found = []
    return sorted(name.removeprefix(WITHIN) for name in found if is_name(name.removeprefix(WITHIN)))


def shown(url: str) -> str:
    """A store URL without secrets, for messages and logs."""
    return url if url.partition(":")[0] in ("sqlite", "memory") else shown_url(url)


def _folder(url: str) -> tuple[Path, str | None]:
    """The folder of an SQLite URL, and the file system (VFS) that it names."""
    folder = folder_of(url)
    assert folder is not None, "the scheme was looked at before"
    return folder, parse_qs(url.partition("?")[2]).get("vfs", [None])[0]


def _address(url: str) -> PgAddress:
    try:
        from semel.store.postgres.address import parse  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise StoreError("PostgreSQL needs a driver: install it with pip install 'semel[postgres]'.") from error
    return parse(url)


def _unknown(url: str) -> StoreError:
    scheme = shown_scheme(url)
    kind = f" {scheme!r}" if scheme else " at a text without a scheme"
    return StoreError(f"There is no store{kind}: use sqlite:FOLDER, postgresql://... or memory:.")
