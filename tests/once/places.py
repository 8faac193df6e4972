"""Where the receipts of functions are in tests: memory, a file of SQLite, a real PostgreSQL, a real Semel server."""

from __future__ import annotations

import atexit
import functools
import itertools
import tempfile
from pathlib import Path
from typing import NamedTuple

import psycopg

from semel import once
from semel.once import Once
from semel.once.table import TABLE
from tests.harness.server import RunningServer
from tests.once.conftest import fresh_schema

PLACES = ("memory", "sqlite", "postgresql", "server")
TOKEN = "not-a-secret"
_numbers = itertools.count(1)


class Place(NamedTuple):
    """A place that no other test has."""

    url: str
    table: str = TABLE
    token: str | None = None

    def open(self) -> Once:
        """A store there; several of them share what is in it."""
        return Once(self.url, table=self.table, token=self.token)

    @property
    def expiry_seconds(self) -> float:
        """After which a receipt that is kept for 1 ms has expired; a Semel server's time has whole seconds."""
        return 2.1 if self.url.startswith("http") else 0.01


@functools.cache
def shared_server() -> RunningServer:
    """One Semel server for a whole run of the tests, which asks for a token; it ends with the process."""
    folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    server = RunningServer(Path(folder.name) / "data", env={"SEMEL_TOKEN_ACTIVE": TOKEN})
    server.start()

    @atexit.register
    def end() -> None:
        server.kill()
        folder.cleanup()

    return server


def fresh_place(kind: str, folder: Path) -> Place:
    """An empty place of one of the kinds."""
    if kind == "server":
        return Place(shared_server().url, f"once_{next(_numbers)}", TOKEN)
    if kind == "postgresql":
        url = fresh_schema()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(once.ddl("postgresql").encode())
        return Place(url)
    if kind == "memory":
        return Place(f"file:once_{next(_numbers)}?mode=memory&cache=shared")
    return Place(str(folder / "receipts.db"))
