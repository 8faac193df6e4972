"""Moves the oldest keys of a log table out of memory, in slices that run after callers have been answered.

A move reads the oldest keys in order of arrival, adds their entries to the buckets of the runs, some buckets in each
transaction, and raises the boundary in the transaction of the last ones. Only after that commit, and when no snapshot
from before it is open, are the entries removed from memory. A crash before the last commit leaves the old boundary: the
start reads all rows above it into memory, and the next move replaces the entries that the interrupted one has left.

The transactions do not wait for the disk: a power loss takes back buckets and boundary together.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice

import apsw

from semel.store.protocol import StoreBrokenError
from semel.store.sqlite.key_index import packed
from semel.store.sqlite.log_table import LogTable
from semel.store.sqlite.query import fetch, sentence
from semel.store.sqlite.run_filter import BUCKETS, bucket_of
from semel.store.sqlite.snapshot_epochs import SnapshotEpochs

READ_ROWS = 64
WRITTEN_BUCKETS = 4
SWEPT_BUCKETS = 64


class RunMove:
    """One move of at least `keys` keys, or of all that there are."""

    def __init__(self, connection: apsw.Connection, log: LogTable, epochs: SnapshotEpochs, keys: int) -> None:
        self.log = log
        self._connection = connection
        self._epochs = epochs
        self._keys = keys
        self._slices = self._move()

    def run(self, ends: float) -> bool:
        """Run slices, each shorter than a millisecond, until that time of `perf_counter`; whether all are done."""
        is_done = False
        while not is_done and time.perf_counter() < ends:
            must_wait = next(self._slices, None)
            if must_wait:
                break
            is_done = must_wait is None
        return is_done

    def _move(self) -> Iterator[bool]:
        """The slices; each yields whether the next one has to wait for a snapshot to end, or for a lock."""
        runs, added = self.log.runs, dict[int, bytearray]()
        last, read = runs.boundary, 0
        while read < self._keys:
            rows = fetch(self._connection, self.log.made.some_keys_above, (last, READ_ROWS))
            if not rows:
                break
            for hashed, (place, *_) in zip(runs.hashes(row[1:] for row in rows), rows, strict=True):
                added.setdefault(bucket_of(hashed), bytearray()).extend(packed(hashed, place))
            last, read = rows[-1][0], read + len(rows)
            yield False
        yield from self._write(added, last, read)
        runs.boundary, runs.keys = last, runs.keys + read
        epoch = self._epochs.begin()
        while not self._epochs.is_past(epoch):
            yield True
        yield from self._sweep(last)

    def _write(self, added: dict[int, bytearray], last: int, read: int) -> Iterator[bool]:
        runs = self.log.runs
        numbers = (number for number in range(BUCKETS) if number in added)
        first = fetch(self._connection, self.log.made.first_place, ())[0][0] or 0
        written = 0
        while some := {number: added[number] for number in islice(numbers, WRITTEN_BUCKETS)}:
            written += len(some)
            is_last = written == len(added)
            boundary, keys = (last, runs.keys + read) if is_last else (runs.boundary, runs.keys)
            while not self._store(some, first, boundary, keys):
                yield True
            yield False

    def _store(self, some: dict[int, bytearray], first: int, boundary: int, keys: int) -> bool:
        """Store some buckets, the boundary and the number of keys below it in one transaction.

        Returns False if another process holds the write lock: nothing is changed then.
        """
        runs = self.log.runs
        self._connection.execute("PRAGMA synchronous = NORMAL")
        try:
            self._connection.execute("BEGIN")
            written = runs.write(self._connection, some, first)
            runs.store(self._connection, boundary, keys)
            self._commit()
            for bucket, entries in written.items():
                runs.filter.set(bucket, entries)
        except apsw.BusyError:
            return False
        finally:
            try:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
            finally:  # no later commit may go without its sync
                self._connection.execute("PRAGMA synchronous = FULL")
        return True

    def _commit(self) -> None:
        try:
            self._connection.execute("COMMIT")
        except apsw.Error as error:
            raise StoreBrokenError(sentence(error)) from error

    def _sweep(self, last: int) -> Iterator[bool]:
        index, number = self.log.index, 0
        while number < index.buckets:  # the index may grow between two slices
            with index.lock:
                for at in range(number, min(number + SWEPT_BUCKETS, index.buckets)):
                    index.forget(at, last)
            number += SWEPT_BUCKETS
            yield False
