"""The one runner: what every row of the table is asked, whatever driver, framework, server or loop it is made of.

| a row does | what must be true |
|---|---|
| one call | it takes effect once, and a second one gets the same result |
| 8 calls of one key at once | one effect, one result |
| a call that raises before the commit | no effect; the retry runs |
| a call whose COMMIT fails, by a deferred constraint | no effect, and nothing is remembered; the retry runs |
| all connections are made anew | a replay gets the first result |

This module needs the standard library and `semel.once` alone: it also runs in other environments.
"""

from __future__ import annotations

import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum

from semel import once
from semel.once.drivers.base import Failure, failure_of

RACERS = 8
PATIENCE_SECONDS = 25.0
TABLES = """
CREATE TABLE accounts (id integer PRIMARY KEY);
INSERT INTO accounts VALUES (1);
CREATE TABLE charges (key text, account integer REFERENCES accounts (id) DEFERRABLE INITIALLY DEFERRED);
"""
RUNS = "CREATE TABLE runs (key text, pid integer);"
"""Charges are effects. A run is noted by a transaction of its own, whatever becomes of the effect."""


class Work(StrEnum):
    """What a call does when it runs."""

    CHARGE = "charge"
    RAISE = "raise"
    COMMIT = "commit"
    """Its COMMIT fails."""


class WorkError(Exception):
    """A program's own error, before its commit."""


class Row(ABC):
    """One row of the table, set up."""

    @abstractmethod
    def call(self, key: str, work: Work = Work.CHARGE) -> str:
        """Do the work under a key in a transaction. Raises if it failed."""

    @abstractmethod
    def effects(self, key: str) -> int:
        """How many charges the database holds for a key."""

    @abstractmethod
    def reconnect(self) -> None:
        """Make all connections anew."""

    def race(self, key: str, racers: int) -> Sequence[str]:
        """Call at the same moment."""
        return at_once([lambda: self.call(key)] * racers)


def at_once(calls: Sequence[Callable[[], str]]) -> list[str]:
    """Make calls at the same moment, each in a thread of its own."""
    barrier = threading.Barrier(len(calls))

    def begin(call: Callable[[], str]) -> str:
        barrier.wait(PATIENCE_SECONDS)
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(begin, calls))


def charge(key: str, work: Work) -> str:
    """The statement of the effect."""
    return f"INSERT INTO charges VALUES ('{key}', {0 if work is Work.COMMIT else 1})"


def new_result(key: str) -> str:
    """A result that no other run of the work has."""
    return f"{key} {uuid.uuid4().hex}"


def is_conflict(error: BaseException) -> bool:
    """Whether the database asks for the whole transaction again, as SERIALIZABLE does."""
    return isinstance(error, once.RunAgain) or failure_of(error) is Failure.CONFLICT


def patiently(call: Callable[[], str]) -> str:
    """A call, again as long as the database asks for that."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return call()
        except Exception as error:
            if not is_conflict(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def error_of(row: Row, key: str, work: Work) -> Exception | None:
    """What a call raises; each driver has its own errors."""
    try:
        row.call(key, work)
    except Exception as error:  # noqa: BLE001 - as above
        return error
    return None


def play_row(row: Row, name: str) -> None:
    """Ask a row everything. The name makes its keys its own."""
    first = row.call(f"{name}-one")
    assert (row.call(f"{name}-one"), row.effects(f"{name}-one")) == (first, 1)
    raced = row.race(f"{name}-raced", RACERS)
    assert (len({*raced}), row.effects(f"{name}-raced")) == (1, 1), raced
    for work in (Work.RAISE, Work.COMMIT):
        key = f"{name}-{work}"
        error = error_of(row, key, work)
        assert error is not None, f"{key} succeeded"
        assert not isinstance(error, once.OnceError), error  # it is the program's error, or the database's
        assert row.effects(key) == 0
        again = row.call(key)
        assert (row.call(key), row.effects(key)) == (again, 1)
    row.reconnect()
    assert (row.call(f"{name}-one"), row.effects(f"{name}-one")) == (first, 1)
