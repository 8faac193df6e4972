"""Receipts that have expired are removed by the writes behind them, or by a command."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner

from semel import once
from semel.cli.main import main
from semel.once import Once
from semel.once.table import SWEEP_EVERY, SWEPT, TABLE, OnceDialect, ParameterStyle, Receipts, rendered
from tests.once.backlog import visits_of
from tests.once.conftest import fresh_schema

EXPIRED = 300


def filled_sqlite(path: Path) -> sqlite3.Connection:
    """A database with receipts that have expired, and one that has not."""
    connection = sqlite3.connect(path)
    connection.executescript(once.ddl("sqlite"))
    rows = [("s", f"k{number}", b"f", "done", 0, number + 1) for number in range(EXPIRED)]
    insert = f"INSERT INTO {TABLE} (scope, key, fingerprint, state, created_at, expires_at) VALUES (?, ?, ?, ?, ?, ?)"
    connection.executemany(insert, [*rows, ("s", "kept", b"f", "done", 0, 2**62)])
    connection.commit()
    return connection


def keys(connection: sqlite3.Connection) -> set[str]:
    """What is there."""
    return {key for (key,) in connection.execute(f"SELECT key FROM {TABLE}")}


def test_one_write_of_64_removes_256_receipts_that_have_expired(tmp_path: Path) -> None:
    connection = filled_sqlite(tmp_path / "app.db")
    for number in range(SWEEP_EVERY):
        with once.transaction(connection, f"new {number}", scope="s"):
            pass
        connection.commit()
    left = keys(connection)
    assert len(left) == EXPIRED - SWEPT + 1 + SWEEP_EVERY
    assert "kept" in left
    connection.close()


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_a_sweep_of_postgresql_waits_for_no_transaction_and_harms_none(level: str) -> None:
    url = fresh_schema()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(once.ddl("postgresql").encode())
        connection.execute(
            f"INSERT INTO {TABLE} (scope, key, fingerprint, state, created_at, expires_at) "
            "SELECT 's', 'k' || n, 'f', 'done', 0, n FROM generate_series(1, 9) AS n"
        )
    with psycopg.connect(url) as holder, psycopg.connect(url) as writer:
        holder.execute(f"SELECT * FROM {TABLE} WHERE key = 'k1' FOR UPDATE")
        writer.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
        writer.execute("SELECT 1")
        for number in range(SWEEP_EVERY):
            with once.transaction(writer, f"new {number}", scope="s", wait="5s"):
                pass
        writer.commit()
        found = {key for (key,) in writer.execute(f"SELECT key FROM {TABLE} WHERE key LIKE 'k%'")}
    assert found == ({"k1"} if level == "READ COMMITTED" else {f"k{number}" for number in range(1, 10)})


def test_a_sweep_that_is_not_allowed_harms_no_write() -> None:
    url = fresh_schema()
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute(once.ddl("postgresql").encode())
        owner.execute(f"CREATE RULE no_delete AS ON DELETE TO {TABLE} DO INSTEAD SELECT 1/0".encode())
        with psycopg.connect(url) as writer:
            for number in range(SWEEP_EVERY):
                with once.transaction(writer, f"new {number}", scope="s"):
                    pass
            writer.commit()
        row = owner.execute(f"SELECT count(*) FROM {TABLE}").fetchone()
    assert row == (SWEEP_EVERY,)


def test_functions_sweep_too(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    connection = filled_sqlite(path)
    store = Once(str(path))

    @store.once(key=lambda number: f"n{number}")
    def work(number: int) -> None: ...

    for number in range(SWEEP_EVERY):
        work(number)
    assert len(keys(connection)) == EXPIRED - SWEPT + 1 + SWEEP_EVERY
    store.close()
    connection.close()


def test_the_command_counts_and_removes_all(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    connection = filled_sqlite(path)
    dry = CliRunner().invoke(main, ["once", "sweep", str(path), "--dry-run"])
    assert (dry.exit_code, dry.stdout) == (0, f"{EXPIRED} receipts have expired.\n")
    assert len(keys(connection)) == EXPIRED + 1
    swept = CliRunner().invoke(main, ["once", "sweep", str(path), "--json"])
    assert json.loads(swept.stdout) == {"expired": EXPIRED, "removed": EXPIRED}
    assert keys(connection) == {"kept"}
    connection.close()


def test_the_command_makes_the_table_or_prints_how(tmp_path: Path) -> None:
    url = fresh_schema()
    printed = CliRunner().invoke(main, ["once", "init", url, "--print"])
    assert printed.stdout == once.ddl("postgresql")
    for _ in range(2):
        made = CliRunner().invoke(main, ["once", "init", url])
        assert (made.exit_code, made.output) == (0, f"The table {TABLE} is ready.\n")
    store = Once(url)
    assert store.once(key=lambda: "k", scope="test")(lambda: 7)() == 7
    store.close()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sweep", "no.db"], "There is no file no.db."),
        (["init", "mysql://x/y"], "mysql:// is not a supported store"),
        (["init", "http://127.0.0.1:1"], "http:// is not a supported store"),
        (["init", "x.db", "--table", "a b"], "is not a valid table name"),
        (["init", "postgresql://127.0.0.1:1/x"], "The table semel_once cannot be created"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = CliRunner().invoke(main, ["once", *words])
    assert told.exit_code == 1
    assert said in told.output
    assert told.output.count("\n") == 1


def test_a_sweep_visits_no_receipt_that_has_not_expired() -> None:
    with psycopg.connect(fresh_schema(), autocommit=True) as connection:
        connection.execute(once.ddl("postgresql").encode())
        connection.execute(
            f"INSERT INTO {TABLE} (scope, key, fingerprint, state, created_at, expires_at) "
            f"SELECT 's', 'k' || n, 'f', 'done', 0, {2**62} FROM generate_series(1, 5000) AS n"
        )
        connection.execute(f"ANALYZE {TABLE}")
        sweep = Receipts().sweep(0, SWEPT)
        sql, parameters = rendered(sweep, ParameterStyle.PERCENT, OnceDialect.POSTGRESQL)
        explained = psycopg.ClientCursor(connection).execute(
            f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}".encode(), parameters
        )
        [(plans,)] = explained.fetchall()
    assert visits_of(plans[0]["Plan"]) <= 1
