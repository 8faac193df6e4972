"""The write lock of a database file, which another process may hold for a short time.

One server writes to a file, but other programs may take the write lock too: Litestream does so while it copies the log
into the file, and a person with the `sqlite3` shell may. The event loop never waits for such a lock: a transaction that
meets it there fails before anything is written, and runs again in the writer's thread, which waits up to
`WAIT_SECONDS`. A crash while waiting loses nothing: no caller has an answer yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic, sleep

import apsw

from semel.store.protocol import StoreAwayError
from semel.store.sqlite.query import sentence

WAIT_SECONDS = 5.0
"""Longest wait for a process that holds the write lock."""
POLL_SECONDS = 0.002
"""Time between two looks whether the lock is free: SQLite tells no one when it is."""


class WriteLock:
    """The write lock, for the one connection of this process that writes."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._until = 0.0
        """The time of the monotonic clock until which the lock is waited for."""
        connection.set_busy_handler(self._waits)

    def begin(self, *, wait: bool) -> None:
        """Begin a transaction: with `wait` it holds the lock, else it takes the lock with its first change.

        Without `wait`, a change that finds the lock taken fails at once; so does one behind a commit of another process
        that came after the first read of this transaction.
        """
        if not wait:
            self._connection.execute("BEGIN")
            return
        try:
            with self.patience():
                self._connection.execute("BEGIN IMMEDIATE")
        except apsw.BusyError as error:
            told = f"Another process held the database for more than {WAIT_SECONDS:g} seconds."
            raise StoreAwayError(f"{told} {sentence(error)}") from error

    @contextmanager
    def patience(self) -> Iterator[None]:
        """Statements of this block wait for the lock, if they are the first of their transaction."""
        self._until = monotonic() + WAIT_SECONDS
        try:
            yield
        finally:
            self._until = 0.0

    def _waits(self, _: int) -> bool:
        """Whether SQLite tries again; called in the thread that runs the statement."""
        if monotonic() >= self._until:
            return False
        sleep(POLL_SECONDS)
        return True
