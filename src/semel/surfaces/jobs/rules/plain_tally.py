"""The counters of a batch of plain writes: each counter row is read once and written once.

The rows are those that `JobCounters` writes for the same changes. The order within a batch is fixed: completions, then
claims, then submissions. A line that the claims empty and the submissions fill again is therefore a new line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any

from semel.kernel.clock import Now
from semel.kernel.verdict import NEVER
from semel.store.protocol import AnyTable, NarrowRows, Row
from semel.store.table import Key
from semel.surfaces.jobs.limits import JobPolicy
from semel.surfaces.jobs.tables import (
    ALONE,
    JOB,
    JOB_KIND,
    JOB_LINE,
    JOB_QUEUE,
    JOB_SHARE,
    JOB_TENANT,
    JOB_TOTALS,
    NO_TOTALS,
    JobKindRow,
    JobLineRow,
    JobQueueRow,
    JobRow,
    JobShareRow,
    JobTenantRow,
)

Place = tuple[bytes, bytes, int, bytes]
"""Principal, kind, priority and queue: what a waiting job is counted by."""
place_of: Callable[[JobRow], Place] = attrgetter("principal", "kind", "priority", "queue")
Loaded = Mapping[AnyTable, Mapping[Key, Any]]


def row_changer(names: tuple[str, ...]) -> Callable[..., JobRow]:
    """A function that replaces these columns of a job, given in this order: a third of the time of `_replace`."""
    fields = JobRow._fields
    # The new values are put behind the row, and each column is taken from its place there.
    arrange = itemgetter(*(len(fields) + names.index(name) if name in names else at for at, name in enumerate(fields)))
    make = partial(tuple.__new__, JobRow)

    def change(job: JobRow, *values: Any) -> JobRow:
        return make(arrange(job + values))

    return change


class PlainTally:
    """The counters of one batch while it is decided."""

    def __init__(self, rows: Loaded, policy: JobPolicy, now: Now) -> None:
        self.rows = rows
        self.policy = policy
        before = self._before = rows[JOB_TOTALS].get(ALONE) or NO_TOTALS
        self.now = now._replace(ms=max(now.expiry_ms, before.updated_at))
        self.seq: int = before.seq
        self.queued = before.waiting - before.scheduled
        self.leased: int = before.leased
        self.records: int = before.records
        self.taken: Counter[Place] = Counter()
        """Jobs that claims took."""
        self.added: Counter[Place] = Counter()
        """Jobs that submissions added."""
        self.ended: Counter[bytes] = Counter()
        """Leases that ended, by queue."""
        self.keys: Counter[bytes] = Counter()
        """New records of named keys, by principal."""
        self.generated: Counter[bytes] = Counter()
        """New records of generated keys, by principal; those of all under no name."""
        self.inserts: dict[AnyTable, list[Row]] = {}
        self.updates: dict[AnyTable, list[Row]] = {}
        self.moved: dict[tuple[str, ...], list[Row]] = {}
        """Changed jobs, by the columns that have changed."""
        self.steady: dict[AnyTable, list[Row]] = {}
        self.deletes: dict[AnyTable, list[Key]] = {}

    @property
    def narrow(self) -> dict[AnyTable, list[NarrowRows]]:
        """The changed jobs for the store."""
        groups = [NarrowRows(columns, rows) for columns, rows in self.moved.items() if rows]
        return {JOB: groups} if groups else {}

    def store(self) -> None:
        """Write the counter rows that have changed."""
        kinds: dict[Any, list[int]] = {}
        lines: dict[Any, list[int]] = {}
        queues: dict[Any, list[int]] = {}
        shares: dict[Any, list[int]] = {}
        for taken, added, counter in ((1, 0, self.taken), (0, 1, self.added)):
            for place, count in counter.items():
                for sums, key in ((kinds, place[1:]), (lines, place[2:]), (queues, place[3]), (shares, place[0])):
                    change = sums.setdefault(key, [0, 0])
                    change[0] += taken * count
                    change[1] += added * count
        for kind, change in kinds.items():
            self._store_line(JOB_KIND, JobKindRow, kind, *change)
        for line, change in lines.items():
            self._store_line(JOB_LINE, JobLineRow, line, *change)
        for queue in {**queues, **self.ended}:
            self._store_queue(queue, *queues.get(queue, (0, 0)))
        for principal, change in shares.items():
            self._store_share(principal, *change)
        for principal in {**self.keys, **self.generated}:
            tenant = self.rows[JOB_TENANT].get((principal,))
            named, generated = (0, 0) if tenant is None else tenant[1:]
            row = JobTenantRow(principal, named + self.keys[principal], generated + self.generated[principal])
            self.keep(JOB_TENANT, tenant, row)
        self._store_totals()

    def keep(self, table: AnyTable, before: Any, after: Any) -> None:
        """Write a row in place of `before`; None deletes it."""
        if after is None:
            if before is not None:
                self.deletes.setdefault(table, []).append(table.key_of(before))
        elif before is None:
            self.inserts.setdefault(table, []).append(after)
        elif before != after:
            kind = self.steady if table.is_steady(before, after) else self.updates
            kind.setdefault(table, []).append(after)

    def _store_line(self, table: AnyTable, row: Any, key: Key, taken: int, added: int) -> None:
        before = self.rows[table].get(key)
        waiting, ready_at = (0, NEVER) if before is None else (before.waiting - taken, before.ready_at)
        assert waiting >= 0, f"the count of {table.name} fell below 0"
        if not waiting:
            ready_at = NEVER
        if added:
            waiting, ready_at = waiting + added, min(ready_at, self.now.ms)
        self.keep(table, before, row(*key, waiting, ready_at) if waiting else None)

    def _store_queue(self, queue: bytes, taken: int, added: int) -> None:
        before = self.rows[JOB_QUEUE].get((queue,))
        row = before or JobQueueRow(queue, 0, 0, 0, 0, 0)
        row = row._replace(leased=row.leased + taken - self.ended[queue], queued=row.queued + added - taken)
        self.keep(JOB_QUEUE, before, row if any(row[1:]) else None)

    def _store_share(self, principal: bytes, taken: int, added: int) -> None:
        before = self.rows[JOB_SHARE].get((principal,))
        row = before or JobShareRow(principal, 0, 0)
        row = row._replace(queued=row.queued + added - taken)
        self.keep(JOB_SHARE, before, row if row.queued or row.scheduled else None)

    def _store_totals(self) -> None:
        before = self._before
        waiting = before.waiting + self.added.total() - self.taken.total()
        row = before._replace(seq=self.seq, waiting=waiting, leased=self.leased, records=self.records)
        if row != before:
            self.keep(JOB_TOTALS, self.rows[JOB_TOTALS].get(ALONE), row._replace(updated_at=self.now.ms))
