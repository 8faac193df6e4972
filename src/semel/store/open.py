"""A store by its URL: opened, or looked at without a trace."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from semel.store.memory import MemoryStore
from semel.store.migrations import Migration
from semel.store.protocol import AnyTable, Glimpse, Store, StoreError
from semel.store.sqlite import SqliteStore
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
    """What stands there, without opening or changing it; these tables are looked into for rows."""
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


def place_of(url: str) -> tuple[str, ...]:
    """Where the rows are: the same for two spellings of one place, as far as the URLs can tell."""
    scheme, _, rest = url.partition(":")
    if scheme == "sqlite" and rest:
        return scheme, str(_folder(rest)[0].resolve())
    if scheme in POSTGRES:
        return POSTGRES[0], *_address(url).place
    if scheme == "memory":
        return (scheme,)
    raise _unknown(url)


def shown(url: str) -> str:
    """A store URL without the secrets that may stand in it, for people and logs."""
    scheme = url.partition(":")[0]
    if scheme in ("sqlite", "memory"):
        return url
    # Up to the last @, wherever it stands: who forgets to encode a password may have any character in it.
    return re.sub(r"//.*@", "//", url).partition("?")[0] if "//" in url else f"{scheme}:..."


def _folder(rest: str) -> tuple[Path, str | None]:
    """The folder in a URL of SQLite, and the file system that it asks for."""
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
