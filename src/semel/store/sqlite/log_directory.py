"""The key indexes of all log tables of a file: built at the start, changed after each commit, bounded in memory.

The one law: an index changes only after COMMIT has succeeded. A transaction collects its changes (`LogChanges`), a
rollback drops them, and `apply` takes them over. A failed COMMIT stops the store, so what the index says then does not
matter. A crash loses all indexes; the next start builds them from the rows.

Readers run beside the writer and must find every row that their snapshot shows. A snapshot may show a commit that is
not applied yet: its new places are in `publishing` from before the COMMIT until they are in the index. A snapshot may
also show a row that was deleted since: its entry stays in the index until every snapshot from before has ended.
Superfluous candidates are harmless, because each one is compared with its row.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import apsw

from semel.store.protocol import Row, StoreError
from semel.store.sqlite.key_index import BYTES_PER_KEY
from semel.store.sqlite.log_statements import LogStatements
from semel.store.sqlite.log_table import HashKey, LogTable, RecentPlaces
from semel.store.sqlite.run_filter import FilterBudget
from semel.store.sqlite.run_move import RunMove
from semel.store.sqlite.snapshot_epochs import SnapshotEpochs
from semel.store.table import Key
from semel.store.usage import KeyIndexSize

INDEX_BYTES = 192_000_000
"""Memory for the keys of all log tables together: three quarters for keys, a quarter for the filters of the runs."""
LEAST_FILTER_BYTES = 256 * 1024
"""Memory that filters may always take."""
MOVED_SHARE = 4
"""A move takes this part of the limit out of memory: a fourth."""
SLICE_SECONDS = 0.001
"""Time that one call of `tidy` spends on a move; ten times as much if the limit is exceeded by half."""
PAUSE_SECONDS = 10.0
"""Wait after a move that failed, for example because the disk is full."""

_log = logging.getLogger("semel.store")


def index_keys_of(size: int) -> int:
    """The number of keys that are held in memory, of this number of bytes for keys and filters."""
    return max(size * 3 // 4 // BYTES_PER_KEY, 1)


class LogApplied(NamedTuple):
    """The changes of one transaction to one log table, for `apply`."""

    log: LogTable
    recent: RecentPlaces
    removed: Sequence[tuple[int, int]]
    """Hash and place of each deleted row."""


class LogDirectory:
    """The log tables of one file by their SQL names. `limit` is the number of keys that all indexes hold together."""

    def __init__(
        self, connection: apsw.Connection, made: Iterable[LogStatements], hash_key: HashKey, limit: int
    ) -> None:
        self.epochs = SnapshotEpochs()
        self.publishing: Mapping[str, RecentPlaces] = {}
        self._connection = connection
        self._limit = limit
        began = time.monotonic()
        budget = FilterBudget(max(limit * BYTES_PER_KEY // 3, LEAST_FILTER_BYTES))
        self._logs = {one.name: LogTable.rebuilt(connection, one, hash_key, limit, budget) for one in made}
        self._replaced: tuple[tuple[int, LogTable], ...] = ()
        """Generations that were dropped, while snapshots may still show them."""
        self._removed: deque[tuple[int, LogTable, int, int]] = deque()
        """Hash and place of deleted rows, while snapshots may still show them."""
        self._move: RunMove | None = None
        self._pause_until = 0.0
        if self._logs:
            spent_ms = round((time.monotonic() - began) * 1_000)
            _log.info("key index built: %d keys in %d ms", self.keys_held, spent_ms)

    @property
    def keys_held(self) -> int:
        """The number of entries in memory."""
        return sum(len(log.index) for log in self._logs.values())

    @property
    def size(self) -> KeyIndexSize:
        """The keys in memory and on disk, and the memory that both take."""
        logs, held = self._logs.values(), self.keys_held
        filters = sum(log.runs.filter.bytes for log in logs)
        return KeyIndexSize(held, sum(log.runs.keys for log in logs), held * BYTES_PER_KEY + filters)

    @property
    def rows(self) -> dict[str, int]:
        """The rows of each log table, all generations together."""
        found: Counter[str] = Counter()
        for log in self._logs.values():
            found[log.made.table.name] += len(log.index) + log.runs.keys
        return dict(found)

    def log(self, name: str) -> LogTable:
        """The committed state of a log table."""
        return self._logs[name]

    def find(
        self, connection: apsw.Connection, generations: Sequence[LogStatements], keys: Sequence[Key]
    ) -> dict[Key, Row]:
        """Rows by key in a snapshot, on its connection; the first generation is the younger, whose rows win."""
        found: dict[Key, Row] = {}
        missing = keys
        publishing = self.publishing  # before the index: what leaves it is in the index already
        for made in generations:
            for log in self._states(made.name):
                located = log.locate_beside_writer(connection, missing, publishing.get(made.name))
                found.update((key, row) for key, (_, row) in located.items())
                missing = [key for key in missing if key not in found]
        return found

    def _states(self, name: str) -> list[LogTable]:
        """The committed state of a log table, and earlier ones that a snapshot may still show."""
        now = self._logs[name]  # before the others: a state that is replaced is put there first
        return [now, *(log for _, log in self._replaced if log.made.name == name and log is not now)]

    def apply(self, changes: Mapping[str, LogApplied]) -> None:
        """Take over the changes of a transaction, after its COMMIT."""
        for name, (log, recent, removed) in changes.items():
            with log.index.lock:
                log.index.extend(recent.hashes, recent.first)
            log.next_place = recent.next_place
            if log is not self._logs[name]:
                self._logs[name].runs.filter.clear()
                self._replaced = (*self._replaced, (self.epochs.begin(), self._logs[name]))
                self._logs[name] = log
            if removed:
                epoch = self.epochs.begin()
                self._removed.extend((epoch, log, hashed, place) for hashed, place in removed)
                log.runs.keys -= sum(place <= log.runs.boundary for _, place in removed)
        self.publishing = {}
        self._remove_unseen()

    def _remove_unseen(self) -> None:
        while self._removed and self.epochs.is_past(self._removed[0][0]):
            _, log, hashed, place = self._removed.popleft()
            with log.index.lock:
                log.index.remove(hashed, place)
        while self._replaced and self.epochs.is_past(self._replaced[0][0]):
            self._replaced = self._replaced[1:]

    def tidy(self) -> None:
        """Move keys out of memory if there are too many; one call takes about a millisecond."""
        self._remove_unseen()
        held = self.keys_held
        move = self._move
        if move is None or self._logs[move.log.made.name] is not move.log:  # the generation was dropped meanwhile
            move = self._move = self._next_move(held)
        if move is None:
            return
        seconds = SLICE_SECONDS * (10 if held > self._limit * 3 // 2 else 1)
        try:
            if move.run(time.perf_counter() + seconds):
                self._move = None
        except (apsw.Error, StoreError) as error:
            # Nothing is lost: the keys are still in memory.
            _log.warning("keys could not be moved out of memory: %s", error)
            self._move, self._pause_until = None, time.monotonic() + PAUSE_SECONDS

    def _next_move(self, held: int) -> RunMove | None:
        if held <= self._limit or time.monotonic() < self._pause_until:
            return None
        largest = max(self._logs.values(), key=lambda log: len(log.index))
        return RunMove(self._connection, largest, self.epochs, max(self._limit // MOVED_SHARE, 1))
