"""Opens a store by its URL: to serve, read-only beside a running server, or for inspection without a trace."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from semel.store.memory import MemoryStore
from semel.store.migrations import Migration, pending
from semel.store.protocol import AnyTable, Glimpse, Snapshot, Store, StoreError
from semel.store.sqlite import SqliteStore
from semel.store.sqlite.beside import beside as sqlite_beside
from semel.store.sqlite.glimpse import glimpse as sqlite_glimpse

if TYPE_CHECKING:
    from semel.store.postgres.address import Address

POSTGRES = ("postgresql", "postgres")


def open_store(
    url: str, tables: Sequence[AnyTable], migrations: Sequence[Migration], wall_ms: Callable[[], int]
) -> Store:
    """`sqlite:FOLDER` (with `?vfs=NAME` for a file system of one's own), `postgresql://...` or `memory:`."""
    scheme, _, rest = url.partition(":")
    if scheme == "memory":
        return MemoryStore(tables, wall_ms)
    if scheme == "sqlite" and rest:
        folder, vfs = _folder(rest)
        return SqliteStore(folder, tables, migrations, wall_ms, vfs)
    if scheme in POSTGRES:
        address = _address(url)
        from semel.store.postgres import PostgresStore  # noqa: PLC0415 - an extra

        return PostgresStore(address, tables, migrations)
    raise _unknown(url)


def look_at(url: str, tables: Sequence[AnyTable]) -> Glimpse:
    """Inspect a store without opening or changing it; these tables are checked for rows."""
    scheme, _, rest = url.partition(":")
    if scheme == "memory":
        return Glimpse(0, None)
    if scheme == "sqlite" and rest:
        folder, vfs = _folder(rest)
        return sqlite_glimpse(folder, tables, vfs)
    if scheme in POSTGRES:
        address = _address(url)
        from semel.store.postgres.glimpse import glimpse  # noqa: PLC0415 - an extra

        return glimpse(address, tables)
    raise _unknown(url)


@contextmanager
def read_beside(
    url: str, tables: Sequence[AnyTable], migrations: Sequence[Migration], wall_ms: Callable[[], int]
) -> Iterator[Snapshot]:
    """One snapshot of a store that servers may be using: nothing is locked, made or migrated, and no row is written.

    Data of another version is refused. Should a server of a newer one come meanwhile, what it adds is not looked at.
    """
    version = look_at(url, ()).version
    if version == 0:
        raise StoreError(f"There is no data in {shown(url)}.")
    if pending(migrations, version):
        raise StoreError(f"{shown(url)} is of the older schema version {version}: run `semel migrate` on it first.")
    with _beside(url, tables, wall_ms) as snapshot:
        yield snapshot


def _beside(url: str, tables: Sequence[AnyTable], wall_ms: Callable[[], int]) -> AbstractContextManager[Snapshot]:
    scheme, _, rest = url.partition(":")
    if scheme == "sqlite":
        folder, vfs = _folder(rest)
        return sqlite_beside(folder, tables, wall_ms, vfs)
    address = _address(url)
    from semel.store.postgres.beside import beside  # noqa: PLC0415 - an extra

    return beside(address, tables)


def place_of(url: str) -> tuple[str, ...]:
    """The location of the rows: equal for two spellings of one place, as far as the URLs show it."""
    scheme, _, rest = url.partition(":")
    if scheme == "sqlite" and rest:
        return scheme, str(_folder(rest)[0].resolve())
    if scheme in POSTGRES:
        return POSTGRES[0], *_address(url).place
    if scheme == "memory":
        return (scheme,)
    raise _unknown(url)


def shown(url: str) -> str:
    """A store URL without secrets, for people and logs."""
    scheme = url.partition(":")[0]
    if scheme in ("sqlite", "memory"):
        return url
    # Up to the last @, wherever it is: a password that was not percent-encoded may contain any character.
    return re.sub(r"//.*@", "//", url).partition("?")[0] if "//" in url else f"{scheme}:..."


def _folder(rest: str) -> tuple[Path, str | None]:
    """The folder of an SQLite URL, and the file system (VFS) that it names."""
    folder, _, query = rest.partition("?")
    return Path(folder.removeprefix("//")), parse_qs(query).get("vfs", [None])[0]


def _address(url: str) -> Address:
    try:
        from semel.store.postgres.address import parse  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise StoreError("PostgreSQL needs a driver: install it with pip install 'semel[postgres]'.") from error
    return parse(url)


def _unknown(url: str) -> StoreError:
    return StoreError(f"There is no store {url.partition(':')[0]!r}: use sqlite:FOLDER, postgresql://... or memory:.")
