"""The key indexes of all log tables of a file: built at the start, and changed after each commit.

The one law: an index changes only after COMMIT has succeeded. A transaction collects its changes (`LogChanges`), a
rollback drops them, and `apply` takes them over. A failed COMMIT stops the store, so what the index says then does not
matter. A crash loses all indexes; the next start builds them from the rows.

Readers run beside the writer and must find every row that their snapshot shows. A snapshot may show a commit that is
not applied yet: its new places are in `publishing` from before the COMMIT until they are in the index. A snapshot may
also show a row that was deleted since, or one whose entry has moved to disk since: the entry stays in the index until
every snapshot from before has ended. Superfluous candidates are harmless, because each one is compared with its row.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import apsw

from semel.store.protocol import Row
from semel.store.sqlite.key_index import BYTES_PER_KEY
from semel.store.sqlite.log_statements import LogStatements
from semel.store.sqlite.log_table import HashKey, LogTable, RecentPlaces
from semel.store.sqlite.moved_keys import MovedState
from semel.store.sqlite.snapshot_epochs import SnapshotEpochs
from semel.store.table import Key
from semel.store.usage import KeyIndexSize

INDEX_BYTES = 192 * 1024 * 1024
"""Memory for the keys of all log tables together: about 8 million."""
FORGOTTEN_AT_ONCE = 1_000
"""Entries that one call of `tidy` removes from memory, in about a millisecond."""

_log = logging.getLogger("semel.store")


def index_keys_of(size: int) -> int:
    """The number of keys that this number of bytes holds."""
    return max(size // BYTES_PER_KEY, 1)


class LogApplied(NamedTuple):
    """The changes of one transaction to one log table, for `apply`."""

    log: LogTable
    recent: RecentPlaces
    removed: Sequence[tuple[int, int]]
    """Hash and place of each entry that leaves memory: its row was deleted, or it has moved."""
    highest: int
    rows: int
    moved: MovedState


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
        self._logs = {one.name: LogTable.rebuilt(connection, one, hash_key, limit) for one in made}
        self.excess = self.keys_held - limit
        """The number of keys that are to move out of memory; negative if there is room."""
        self._replaced: tuple[tuple[int, LogTable], ...] = ()
        """Generations that were dropped, while snapshots may still show them."""
        self._removed: deque[tuple[int, LogTable, int, int]] = deque()
        """Hash and place of entries that leave memory, while snapshots may still need them."""
        if self._logs:
            spent_ms = round((time.monotonic() - began) * 1_000)
            _log.info("key index built: %d keys in %d ms", self.keys_held, spent_ms)

    @property
    def keys_held(self) -> int:
        """The number of entries in memory."""
        return sum(len(log.index) for log in self._logs.values())

    @property
    def size(self) -> KeyIndexSize:
        """The keys in memory and on disk, and the memory that the former take."""
        held = self.keys_held
        return KeyIndexSize(held, sum(log.moved.state.keys for log in self._logs.values()), held * BYTES_PER_KEY)

    @property
    def rows(self) -> dict[str, int]:
        """The rows of each log table, all generations together."""
        found: Counter[str] = Counter()
        for log in self._logs.values():
            found[log.made.table.name] += log.rows
        return dict(found)

    def logs(self) -> Iterable[LogTable]:
        """The committed state of all log tables."""
        return self._logs.values()

    def log(self, name: str) -> LogTable:
        """The committed state of a log table."""
        return self._logs[name]

    def has_other_places(self) -> bool:
        """Whether a log table does not end where this process has left it; asked inside a transaction."""
        return any(log.made.highest(self._connection) != log.highest for log in self._logs.values())

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
        leaving = 0
        for name, (log, recent, removed, highest, rows, moved) in changes.items():
            self.excess -= self._logs[name].unmoved
            with log.index.lock:
                log.index.extend(recent.hashes, recent.first)
            log.next_place, log.highest, log.rows, log.moved.state = recent.next_place, highest, rows, moved
            self.excess += log.unmoved
            if log is not self._logs[name]:
                self._replaced = (*self._replaced, (self.epochs.begin(), self._logs[name]))
                self._logs[name] = log
            if removed:
                epoch = self.epochs.begin()
                self._removed.extend((epoch, log, hashed, place) for hashed, place in removed)
                leaving += len(removed)
        self.publishing = {}
        self.tidy(2 * leaving)

    def tidy(self, count: int = FORGOTTEN_AT_ONCE) -> None:
        """Remove entries from memory that no snapshot needs, at most this number."""
        while count and self._removed and self.epochs.is_past(self._removed[0][0]):
            _, log, hashed, place = self._removed.popleft()
            with log.index.lock:
                log.index.remove(hashed, place)
            count -= 1
        while self._replaced and self.epochs.is_past(self._replaced[0][0]):
            self._replaced = self._replaced[1:]
