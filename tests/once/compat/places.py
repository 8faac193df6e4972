"""Databases for the table: each with charges, receipts and an outbox, which all rows share under keys of their own."""

from __future__ import annotations

import contextlib
import itertools
import os
import sqlite3
from pathlib import Path

import psycopg

from semel import once
from tests.once.compat.run import RUNS, TABLES

BUSY_SECONDS = 30.0
_numbers = itertools.count(1)


def postgres_place(url: str, isolation: str = "read committed") -> str:
    """The URL of a new database of a server. Its own settings say how its transactions are isolated."""
    name = f"compat_{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        connection.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = '{isolation}'".encode())
    place = url.rpartition("/")[0] + f"/{name}"
    with psycopg.connect(place, autocommit=True) as connection:
        connection.execute(f"{TABLES}{RUNS}{once.ddl()};{once.outbox_ddl()}".encode())
    return place


def sqlite_place(folder: Path) -> str:
    """The path of a new file."""
    place = str(folder / "compat.db")
    with contextlib.closing(sqlite3.connect(place)) as connection:
        script = f"PRAGMA journal_mode = WAL;{TABLES}{once.ddl('sqlite')};{once.outbox_ddl('sqlite')}"
        connection.executescript(script)
    with contextlib.closing(sqlite3.connect(runs_beside(place))) as connection:
        connection.executescript(f"PRAGMA journal_mode = WAL;{RUNS}")
    return place


def runs_beside(place: str) -> str:
    """The file of the runs: the transaction of an effect locks its own file."""
    return f"{place}.runs"


def found_at(place: str, sql: str) -> list[tuple[object, ...]]:
    """Look from outside."""
    if place.startswith("postgresql"):
        with psycopg.connect(place, autocommit=True) as connection:
            return connection.execute(sql.encode()).fetchall()
    with contextlib.closing(sqlite3.connect(place, timeout=BUSY_SECONDS)) as connection:
        return connection.execute(sql).fetchall()


def count(place: str, table: str, key: str) -> int:
    """The number of charges or runs under a key."""
    place = runs_beside(place) if table == "runs" and not place.startswith("postgresql") else place
    [(number,)] = found_at(place, f"SELECT count(*) FROM {table} WHERE key = '{key}'")
    assert isinstance(number, int)
    return number


def note_run(place: str, key: str) -> None:
    """Note which process runs the work of a key, in a transaction of its own."""
    values = f"('{key}', {os.getpid()})"
    if place.startswith("postgresql"):
        with psycopg.connect(place, autocommit=True) as connection:
            connection.execute(f"INSERT INTO runs VALUES {values}".encode())
        return
    with contextlib.closing(sqlite3.connect(runs_beside(place), timeout=BUSY_SECONDS)) as other, other:
        other.execute(f"INSERT INTO runs VALUES {values}")
