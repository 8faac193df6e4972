"""A transaction on PostgreSQL, in two round trips: locks, clock and rows; then changes, mark and COMMIT.

The first statement takes the locks and the second reads, so that the rows are read under the locks. Nothing is sent
before it is needed: a transaction that only stores soft changes takes one round trip.

In a crash: before COMMIT the server rolls back when the connection ends. If the answer to COMMIT is lost, the outcome
is unknown, and the commit mark decides it (`commit_fate`). The outcome is also unknown if the server reports that it
stopped waiting for its standby.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from semel.store.postgres.commit_fate import CommitMark, ask_fate
from semel.store.postgres.locks import LockKind, slot_of_table, slots_of, take
from semel.store.postgres.pipeline import BROKEN, UNFIT, Filled, LostError, PgRefusedError, Rows, meaning, sentence
from semel.store.postgres.pipeline import number as encode_number
from semel.store.postgres.statements import GENERATIONS, NOW_MS, PgStatements
from semel.store.protocol import (
    AnyTable,
    Changes,
    CommitUnknownError,
    LoadedRows,
    Lock,
    Range,
    Row,
    StoreAwayError,
    StoreChangedError,
    StoreMovedError,
    StoreUnfitError,
    Touch,
    TryAgainError,
    turn_lock,
)
from semel.store.sql_dialect import MOVED
from semel.store.table import Key

if TYPE_CHECKING:
    from semel.store.postgres.connection_pool import WriterConnection
    from semel.store.postgres.store import PgStore

SEND_BYTES = 8 * 1024 * 1024
"""Changes beyond this size are sent before the commit, so that a copy of any size fits in memory."""

_BEGIN: Filled = ("BEGIN ISOLATION LEVEL READ COMMITTED", ())
_SOFTLY: Filled = ("SET LOCAL synchronous_commit = off", ())
_BRIEFLY: Filled = ("SET LOCAL lock_timeout = 200", ())
_USUALLY: Filled = ("SET LOCAL lock_timeout TO DEFAULT", ())
_COMMIT: Filled = ("COMMIT", ())
_ROLLBACK: Filled = ("ROLLBACK", ())
_CLOCK: Filled = (f"SELECT {NOW_MS}, name, number FROM (SELECT 1) one LEFT JOIN semel_generation ON true", ())
_DROP = "DELETE FROM semel_generation WHERE name = $1"
_TURN = "INSERT INTO semel_generation VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET number = excluded.number"


class PgTransaction:
    """Open from construction to `commit` or `rollback`; holds a connection of the pool for that time."""

    def __init__(self, store: PgStore, writer: WriterConnection, locks: Sequence[Lock], durable: bool) -> None:
        self._store = store
        self._writer = writer
        self._durable = durable
        turning = {table: Lock(turn_lock(table).name) in locks for table in store.generational}
        generations = [slot_of_table(table, shared=not turns) for table, turns in turning.items()]
        names = [lock for lock in locks if lock not in map(turn_lock, turning)]
        self._named = slots_of(names)
        self._slots = [*sorted(generations, key=lambda slot: slot.number), *self._named]
        """A rotation takes its slot exclusively from the start, so that no transaction has to upgrade a shared lock."""
        self._turning = {table for table, turns in turning.items() if turns}
        self._is_begun = False
        self._is_over = False
        self._now_ms = 0
        self._loaded_at = 0.0
        self._numbers: Mapping[str, int] = store.generations
        """The generation of each table that takes new rows; provisional until it has been read under the locks."""
        self._waiting: list[Filled] = []
        self._waiting_bytes = 0
        self._touches: list[tuple[int, PgStatements, Sequence[Touch]]] = []
        self._topics: Sequence[bytes] = ()

    @property
    def now_ms(self) -> int:
        self._begin(())
        return self._now_ms

    def load(self, keys: Mapping[AnyTable, Iterable[Key]], ranges: Sequence[Range]) -> LoadedRows:
        wanted = {table: list(some) for table, some in keys.items()}
        believed = dict(self._numbers)
        finds = [(table, made) for table in wanted if wanted[table] for made in self._lookup(table, believed)]
        answers = self._ask(
            lambda: [
                *(made.find(wanted[table]) for table, made in finds),
                *(self._store.scannable(one.table).scan(one) for one in ranges),
            ]
        )
        if any(believed.get(table.name) != self._numbers.get(table.name) for table, _ in finds):
            return self.load(wanted, ranges)  # a table was rotated since the last read: load from the right generations
        rows: dict[AnyTable, dict[Key, Row]] = {table: {} for table in wanted}
        for (table, made), answer in zip(finds, answers, strict=False):
            for row in map(made.unsigned.row_in, answer):
                rows[table][row[: table.key]] = row
        scanned = answers[len(finds) :]
        return LoadedRows(
            rows,
            [
                [self._store.scannable(one.table).unsigned.row_in(row) for row in answer]
                for one, answer in zip(ranges, scanned, strict=True)
            ],
        )

    def flush(self, changes: Changes) -> None:
        if self._durable:
            if self._store.unsafe:
                raise StoreUnfitError(self._store.unsafe)
            self._begin(())
        try:
            for filled in self._filled(changes.summed()):
                self._wait(filled)
        except UNFIT as error:
            raise meaning(error) from error
        self._topics = [*self._topics, *changes.topics]
        if self._waiting_bytes > SEND_BYTES:
            self._send_waiting()

    def _filled(self, changes: Changes) -> Iterable[Filled]:
        for table, gone in changes.deletes.items():
            for made in self._lookup(table, self._numbers):
                yield made.delete(gone)
        for table, rows in changes.replaced():
            yield self._younger(table).update(rows)
        for table, rows in changes.inserts.items():
            yield self._younger(table).insert(rows)
        groups: dict[tuple[AnyTable, str, str | None, str | None], dict[tuple[Key, bytes | None], Touch]] = defaultdict(
            dict
        )
        for touch in changes.touches:
            group = groups[touch.table, touch.column, touch.life_column, touch.beside_column]
            known = group.get((touch.key, touch.life))
            if known is None or known.value < touch.value:
                group[touch.key, touch.life] = touch
        for (table, _, _, _), touches in groups.items():
            for made in self._lookup(table, self._numbers):
                some = [touches[place] for place in sorted(touches, key=lambda place: place[0])]
                self._touches.append((len(self._waiting), made, some))
                yield made.touch(some)

    def rotate(self, table: AnyTable) -> None:
        self._begin(())
        if table not in self._turning:
            self._wait(take(self._store.address.schema, [slot_of_table(table, shared=False)]))
        number = (self._numbers.get(table.name, 0) + 1) % GENERATIONS
        self._wait((self._store.statements[table][number].clear, ()))
        self._wait((_TURN, (table.name.encode(), encode_number(number))))
        self._numbers = {**self._numbers, table.name: number}

    def mark_moved(self, is_moved: bool) -> None:
        """Write the mark of a store whose data was moved, or delete it."""
        self._begin(())
        name = MOVED.encode()
        self._wait((_TURN, (name, encode_number(1))) if is_moved else (_DROP, (name,)))

    def oldest(self, table: AnyTable) -> PgStatements:
        """The generation that no reader uses as long as this transaction is open."""
        self._begin(())
        return self._store.statements[table][(self._numbers.get(table.name, 0) + 1) % GENERATIONS]

    def commit(self) -> Collection[Touch]:
        mark = self._writer.mark
        if self._durable:
            self._begin(())
            mark.number += 1
            self._waiting.append(mark.write())
        ahead = [] if self._is_begun else [_BEGIN, _SOFTLY]
        self._is_begun = True
        answers = self._send_commit([*ahead, *self._waiting, _COMMIT])
        self._is_over = True
        try:
            if self._durable:
                self._store.committed(mark, self._topics)
            return self._undone(answers[len(ahead) :])
        finally:
            self._store.pool.free_writer(self._writer)

    def _send_commit(self, statements: Sequence[Filled]) -> Sequence[Rows]:
        """Send the last statements and COMMIT; returns when the transaction is committed, with no answers if its own
        was lost.
        """
        began = time.monotonic()
        self._writer.line.stopped_waiting = False
        try:
            answers = self._writer.line.exchange(statements)
        except PgRefusedError as error:
            raise meaning(error) from error
        except LostError as error:
            self._settle(error, began)
            return ()
        if self._writer.line.stopped_waiting:
            self._settle(LostError("the server stopped waiting for its standby."), began)
        elif self._durable:
            self._writer.line.committed(began)
        return answers

    def check(self) -> None:
        line = self._writer.line
        if line.is_current(self._loaded_at):
            return
        self._is_begun = False
        try:
            line.exchange([_ROLLBACK])
            line.verify()
        except BROKEN as error:
            line.drop()
            raise TryAgainError(sentence(error)) from error

    def rollback(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        if self._is_begun:
            try:
                self._writer.line.exchange([_ROLLBACK])
            except BROKEN:
                self._writer.line.drop()  # the server rolls back when the connection ends
        self._store.pool.free_writer(self._writer)

    def _settle(self, error: Exception, began: float) -> None:
        """After a commit without a clear answer, find out whether it took effect."""
        self._is_begun = False  # there is nothing left to roll back
        mark, number = self._writer.mark, self._writer.mark.number
        self._writer.line.drop()
        if not self._durable:
            raise TryAgainError(sentence(error)) from error
        is_committed = self._fate(mark, number, began + self._store.address.patience)
        if is_committed is None:
            self._writer.disown(mark)  # at once: there may be no new connection before the next write
            raise CommitUnknownError(sentence(error)) from error
        if not is_committed:
            raise TryAgainError(f"{sentence(error)} The transaction was not committed.") from error

    def _fate(self, mark: CommitMark, number: int, deadline: float) -> bool | None:
        """Whether that transaction was committed; None if the database could not be asked in time."""
        line = self._writer.line
        while True:
            try:
                line.open(deadline)
                line.stopped_waiting = False
                found = line.exchange(ask_fate(self._store.address.schema, mark))[-2]
                if not line.stopped_waiting:
                    return bool(found[0][0] >= number)
            except StoreAwayError:
                return None
            except BROKEN:
                line.drop()
            if time.monotonic() >= deadline:
                return None

    def _begin(self, statements: Sequence[Filled]) -> list[Rows]:
        """Begin if that has not happened yet, and send these statements; one round trip, or none."""
        if self._is_begun and not statements:
            return []
        opening = [] if self._is_begun else self._opening()
        self._is_begun = True  # even if this fails, there may be a transaction to roll back
        try:
            answers = self._writer.line.exchange([*opening, *statements])
        except BROKEN as error:
            raise meaning(error) from error
        self._loaded_at = time.monotonic()
        if opening:
            clock = answers[len(opening) - 1]
            self._now_ms = clock[0][0]
            self._numbers = {name.decode(): number for _, name, number in clock if name is not None}
            if MOVED in self._numbers and not self._store.may_be_moved:
                # This node began before the mark was written, so it has not seen it at its start.
                raise StoreChangedError(str(StoreMovedError(f"schema {self._store.address.schema}")))
            self._store.know_generations(self._numbers)
        return answers[len(opening) :]

    def _opening(self) -> list[Filled]:
        schema = self._store.address.schema
        if not self._durable:
            locked = [take(schema, self._named)] if self._named else []
            return [_BEGIN, _SOFTLY, *locked, _CLOCK]
        slots = [self._writer.mark.slot, *self._slots]
        if not self._turning:
            return [_BEGIN, take(schema, slots), _CLOCK]
        # All writers queue behind one that waits for an exclusive slot: a rotation gives up early and is tried again
        # later.
        shared = [slot for slot in slots if slot.kind is not LockKind.NAME]
        named = [slot for slot in slots if slot.kind is LockKind.NAME]
        return [_BEGIN, _BRIEFLY, take(schema, shared), _USUALLY, take(schema, named), _CLOCK]

    def _ask(self, fill: Callable[[], list[Filled]]) -> list[Rows]:
        try:
            statements = fill()
        except UNFIT as error:
            raise meaning(error) from error
        self._send_waiting()
        return self._begin(statements)

    def _send_waiting(self) -> None:
        if self._waiting and not self._touches:
            assert self._is_begun, "changes are sent inside a transaction"
            statements, self._waiting, self._waiting_bytes = self._waiting, [], 0
            self.send(statements)

    def send(self, statements: Sequence[Filled]) -> list[Rows]:
        """Run these statements now."""
        try:
            return self._writer.line.exchange(statements)
        except BROKEN as error:
            raise meaning(error) from error

    def _wait(self, filled: Filled) -> None:
        self._waiting.append(filled)
        self._waiting_bytes += sum(len(value) for value in filled[1] if isinstance(value, bytes))

    def _undone(self, answers: Sequence[Rows]) -> list[Touch]:
        if not answers:
            return [touch for _, _, touches in self._touches for touch in touches]
        undone = []
        for place, made, touches in self._touches:
            found: tuple[set[Key], set[Key]] = (set(), set())
            for done, *key in answers[place]:
                found[done].add(made.unsigned.key_in(key))
            undone += [touch for touch in touches if touch.key in found[0] - found[1]]
        return undone

    def _lookup(self, table: AnyTable, numbers: Mapping[str, int]) -> list[PgStatements]:
        """The SQL tables in which a row may be; the younger generation is last, so that its rows win."""
        made = self._store.statements[table]
        if not table.generational:
            return made
        number = numbers.get(table.name)
        if number is None:
            return made[:1]  # the table was never rotated, so there is no older generation
        return [made[(number - 1) % GENERATIONS], made[number]]

    def _younger(self, table: AnyTable) -> PgStatements:
        made = self._store.statements[table]
        return made[self._numbers.get(table.name, 0)] if table.generational else made[0]
