"""Data of another form is refused by name, in one sentence, and left as it is; it is never read as empty.

`tests/forms` has what an earlier revision (93eb70d9) wrote: a receipt, a message, a store with a stream, its backup.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
import sqlalchemy

from semel import Client, Once, once
from semel.client import AsyncClient, ConfigurationError, TransactionCursor
from semel.client.errors import LocalFileError
from semel.once import Outbox, TableMismatch
from tests.cli.command import Semel
from tests.harness.postgres.shared import fresh_url
from tests.once.conftest import fresh_schema

FORMS = Path(__file__).parent / "forms"
NOWHERE = "http://127.0.0.1:9"


def rows_of(path: Path) -> list[str]:
    """Everything that a SQLite file holds."""
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


def older(name: str, path: Path) -> Path:
    """A SQLite file of the earlier revision."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript((FORMS / f"{name}.sql").read_text("utf-8"))
    return path


def refused(act: Callable[[], object], kind: type[Exception], *words: str) -> None:
    """See that an act is refused with one sentence that has these words."""
    with pytest.raises(kind) as raised:
        act()
    assert all(word in str(raised.value) for word in words), raised.value
    assert str(raised.value).count("\n") == 0


# -- The tables of the library ----------------------------------------------------------------------------------------


def open_once(path: str) -> None:
    with closing(Once(path)) as store:
        store.once(key="{k}", scope="shop")(lambda k: 1)("a")


def open_outbox(path: str) -> None:
    with closing(Outbox(path)) as box:
        box.post(f"{NOWHERE}/charges", json={}, key="charge-8")


@pytest.mark.parametrize(("name", "act"), [("once", open_once), ("outbox", open_outbox)])
def test_a_file_of_the_library(tmp_path: Path, name: str, act: Callable[[str], None]) -> None:
    path = older(name, tmp_path / "app.db")
    before = rows_of(path)
    refused(lambda: act(str(path)), TableMismatch, f"semel_{name}", "another version", "it lacks")
    assert rows_of(path) == before


@pytest.mark.parametrize(("name", "act"), [("once", open_once), ("outbox", open_outbox)])
def test_a_table_of_the_library_on_postgresql(name: str, act: Callable[[str], None]) -> None:
    url = fresh_schema()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute((FORMS / f"{name}.postgresql.sql").read_bytes())
        refused(lambda: act(url), TableMismatch, f"semel_{name}", "another version", "it lacks")
        assert connection.execute(f"SELECT * FROM semel_{name}".encode()).fetchall() == []


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_table_of_receipts_in_a_transaction_and_when_it_is_created(tmp_path: Path, kind: str) -> None:
    if kind == "sqlite":
        engine = sqlalchemy.create_engine(f"sqlite:///{older('once', tmp_path / 'app.db')}")
    else:
        url = fresh_schema()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute((FORMS / "once.postgresql.sql").read_bytes())
        engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))

    def charge() -> None:
        with engine.begin() as connection, once.transaction(connection, "charge:8", scope=None) as attempt:
            attempt.result = 5

    refused(charge, TableMismatch, "semel_once", "another version")
    refused(lambda: once.migrate(engine), TableMismatch, "semel_once", "another version", "it lacks")
    engine.dispose()


def test_the_table_of_a_cursor(tmp_path: Path) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'app.db'}")
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("CREATE TABLE semel_cursor (name text PRIMARY KEY, committed_id integer)"))
    refused(lambda: TransactionCursor.migrate(engine), TableMismatch, "semel_cursor", "another version", "epoch")
    engine.dispose()


def test_the_commands_of_the_library(tmp_path: Path) -> None:
    semel = Semel(NOWHERE)
    for name, words in (("once", ("once", "init")), ("once", ("once", "sweep")), ("outbox", ("outbox", "init"))):
        path = older(name, tmp_path / "-".join(words) / "app.db")
        before = rows_of(path)
        run = semel.here(*words, str(path))
        assert run.code == 1
        assert f"semel_{name}" in run.err
        assert "another version" in run.err
        assert rows_of(path) == before


# -- Files of clients -------------------------------------------------------------------------------------------------


def of_format(path: Path, number: str) -> Path:
    """The same file as another version writes it."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE semel_meta SET value = ? WHERE name = 'format'", (number,))
    return path


def open_replica(path: Path) -> None:
    async def main() -> None:
        async with AsyncClient(NOWHERE) as client, client.deltas(path, "shop", "till"):
            pass

    asyncio.run(main())


@pytest.mark.parametrize("number", ["1", "3"])
def test_the_file_of_a_replica(tmp_path: Path, number: str) -> None:
    open_replica(path := tmp_path / "replica.db")
    before = rows_of(of_format(path, number))
    refused(lambda: open_replica(path), ConfigurationError, str(path), f"format {number}", "format 2")
    assert rows_of(path) == before


@pytest.mark.parametrize("number", ["0", "2"])
def test_the_file_of_a_ledger_writer(tmp_path: Path, number: str) -> None:
    path = tmp_path / "writer.db"

    def open_writer() -> None:
        with Client(NOWHERE) as client, client.ledger.place(1, 1).writer("w", path):
            pass

    open_writer()
    before = rows_of(of_format(path, number))
    refused(open_writer, LocalFileError, str(path), f"format {number}", "format 1")
    assert rows_of(path) == before


# -- Stores of a server -----------------------------------------------------------------------------------------------

COMMANDS = (
    ("migrate",),
    ("check",),
    ("epoch", "raise", "--yes"),
    ("backup", "create", "out.backup"),
    ("token", "list", "--offline"),
)


def test_the_folder_of_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = older("server", tmp_path / "data" / "semel.db")
    before, semel = rows_of(path), Semel(NOWHERE)
    for words in (*COMMANDS, ("serve", "--port", "0")):
        run = semel(*words, "--store", f"sqlite:{tmp_path / 'data'}")
        assert run.code != 0, words
        assert "schema version 1" in run.err, (words, run.err)
        assert rows_of(path) == before, words
    assert not (tmp_path / "out.backup").exists()


def test_the_schema_of_a_server_on_postgresql() -> None:
    url, semel = fresh_url(schema="older"), Semel(NOWHERE)
    with psycopg.connect(url.partition("?")[0], autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS older CASCADE")
        connection.execute("CREATE SCHEMA older")
        connection.execute("CREATE TABLE older.semel_schema (version bigint NOT NULL)")
        connection.execute("INSERT INTO older.semel_schema VALUES (1)")
        connection.execute("CREATE TABLE older.semel_generation (name bytea PRIMARY KEY, number bigint NOT NULL)")
        for words in (*COMMANDS[:2], ("serve", "--port", "0")):
            run = semel(*words, "--store", url)
            assert run.code != 0, words
            assert "schema version 1" in run.err, (words, run.err)
        assert connection.execute("SELECT version FROM older.semel_schema").fetchall() == [(1,)]


def test_a_backup(tmp_path: Path) -> None:
    path = tmp_path / "server.backup"
    shutil.copy(FORMS / "server.backup", path)
    run = Semel(NOWHERE).here("restore", str(path), "--store", f"sqlite:{tmp_path / 'data'}")
    assert run.code != 0
    assert "format version 1" in run.err
    assert not (tmp_path / "data").exists()
