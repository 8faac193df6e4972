"""Streams as a contract of the engine: locks, rows, decisions and chores."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence

from semel.engine.contract import DecisionResult, Order, Stage, View
from semel.engine.plain_write import LoadedByKey, PlainResult
from semel.engine.reading import Reading
from semel.kernel.clock import Now
from semel.kernel.verdict import Window
from semel.store.protocol import AnyTable, Lock, Range
from semel.store.table import Key
from semel.surfaces.epoch import EPOCH, EPOCH_KEY
from semel.surfaces.streams.commands import Append, Create, Delete, Expire, Purge, StreamCommand
from semel.surfaces.streams.rules.append import append, sequence_of
from semel.surfaces.streams.rules.expiry import SWEEP_GRACE_MS
from semel.surfaces.streams.rules.lifecycle import create, delete, expire, purge
from semel.surfaces.streams.rules.plain_append import PlainAppend, decide_plain, plain_keys
from semel.surfaces.streams.tables import CHUNK, PRODUCER, RECEIPT, STREAM, TOMBSTONE

CHORES = 32
ROWS_PER_CHORE = 500


class Streams:
    """The contract of streams. `keep` is the retention of idempotency keys."""

    name = "streams"

    def __init__(self, keep: Window) -> None:
        self._keep = keep

    def locks(self, command: StreamCommand) -> Sequence[Lock]:
        """One lock for each stream. Rows of an ended stream have a lock of their own, except those of producers: these
        may belong to a newer stream of the same name.
        """
        if isinstance(command, Purge):
            scopes = {scope for scope, _ in command.producers}
            return (Lock(b"grave:" + command.id), *(Lock(b"stream:" + scope) for scope in scopes))
        return (Lock(b"stream:" + command.scope),)

    def needs(self, command: StreamCommand) -> Generator[Stage, View, None]:
        """All keys are in the request, so there is one stage."""
        yield Stage(keys=_keys(command))

    def order(self, command: StreamCommand) -> Order | None:
        """The appends of one producer epoch are a sequence."""
        return sequence_of(command) if isinstance(command, Append) else None

    def decide(self, view: View, command: StreamCommand, now: Now) -> DecisionResult:
        """Decide one command."""
        if isinstance(command, Append):
            return append(view, command, now, self._keep)
        if isinstance(command, Create):
            return create(view, command, now)
        if isinstance(command, Delete):
            return delete(view, command, now)
        if isinstance(command, Expire):
            return expire(view, command, now)
        return purge(view, command)

    def plain_keys(self, writes: Sequence[PlainAppend]) -> Mapping[AnyTable, Iterable[Key]]:
        """The rows that plain appends need."""
        return plain_keys(writes)

    def decide_plain(self, rows: LoadedByKey, writes: Sequence[PlainAppend], now: Now) -> PlainResult:
        """Decide plain appends, and leave the others."""
        return decide_plain(rows, writes, now, self._keep)

    def chores(self, reading: Reading) -> Sequence[StreamCommand]:
        """Commands that delete expired streams, and that free the rows of deleted ones."""
        ended = Range(STREAM, "deadline", (), CHORES, stop=(reading.now.expiry_ms - SWEEP_GRACE_MS,))
        expired = [Expire(stream.scope) for stream in reading.range(ended)]
        graves = reading.range(Range(TOMBSTONE, "", (), CHORES))
        return [*expired, *(_purge_of(reading, grave.id) for grave in graves)]


def _keys(command: StreamCommand) -> list[tuple[AnyTable, Key]]:
    if isinstance(command, Append):
        scope = command.scope
        keys: list[tuple[AnyTable, Key]] = [(STREAM, (scope,)), (EPOCH, EPOCH_KEY)]
        if command.key is not None:
            keys.append((RECEIPT, (scope, command.key)))
        if command.producer is not None:
            keys.append((PRODUCER, (scope, command.producer.packed)))
        return keys
    if isinstance(command, Purge):
        return [(TOMBSTONE, (command.id,)), *((PRODUCER, key) for key in command.producers)]
    return [(STREAM, (command.scope,)), *([(EPOCH, EPOCH_KEY)] if isinstance(command, Create) else [])]


def _purge_of(reading: Reading, life: bytes) -> Purge:
    chunks = tuple(reading.keys(Range(CHUNK, "", (life,), ROWS_PER_CHORE)))
    producers = tuple(reading.keys(Range(PRODUCER, "life", (life,), ROWS_PER_CHORE)))
    return Purge(life, chunks, producers, is_last=max(len(chunks), len(producers)) < ROWS_PER_CHORE)
