"""Streams as a contract of the engine: locks, rows, decisions and chores."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from semel.contracts.epoch import EPOCH, EPOCH_KEY
from semel.contracts.streams.commands import Append, Bury, Command, Create, Delete, Expire
from semel.contracts.streams.rules.append import append, sequence_of
from semel.contracts.streams.rules.create import create
from semel.contracts.streams.rules.life import SWEEP_GRACE_MS
from semel.contracts.streams.rules.remove import delete, expire, free
from semel.contracts.streams.tables import CHUNK, GRAVE, PRODUCER, RECEIPT, STREAM
from semel.engine.contract import Order, Outcome, Stage, View
from semel.engine.reading import Reading
from semel.kernel.clock import Now
from semel.kernel.retention import Window
from semel.store.protocol import AnyTable, Lock, Range
from semel.store.table import Key

CHORES = 32
ROWS_A_CHORE = 500


class Streams:
    """The contract of streams. `keep` is the retention of idempotency keys."""

    name = "streams"

    def __init__(self, keep: Window) -> None:
        self._keep = keep

    def locks(self, command: Command) -> Sequence[Lock]:
        """One lock a stream. An ended life has one of its own, but its producers' rows may be a newer life's by now."""
        if isinstance(command, Bury):
            scopes = {scope for scope, _ in command.producers}
            return (Lock(b"grave:" + command.id), *(Lock(b"stream:" + scope) for scope in scopes))
        return (Lock(b"stream:" + command.scope),)

    def needs(self, command: Command) -> Generator[Stage, View, None]:
        """Everything is found by names in the request: one stage."""
        yield Stage(keys=_keys(command))

    def order(self, command: Command) -> Order | None:
        """Appends of one producer epoch are a sequence."""
        return sequence_of(command) if isinstance(command, Append) else None

    def decide(self, view: View, command: Command, now: Now) -> Outcome:
        """Judge one command."""
        if isinstance(command, Append):
            return append(view, command, now, self._keep)
        if isinstance(command, Create):
            return create(view, command, now)
        if isinstance(command, Delete):
            return delete(view, command, now)
        if isinstance(command, Expire):
            return expire(view, command, now)
        return free(view, command)

    def chores(self, reading: Reading) -> Sequence[Command]:
        """Ended streams to remove, and the remains of removed ones to free."""
        ended = Range(STREAM, "deadline", (), CHORES, stop=(reading.now.expiry_ms - SWEEP_GRACE_MS,))
        expired = [Expire(stream.scope) for stream in reading.range(ended)]
        graves = reading.range(Range(GRAVE, "", (), CHORES))
        return [*expired, *(_burial(reading, grave.id) for grave in graves)]


def _keys(command: Command) -> list[tuple[AnyTable, Key]]:
    if isinstance(command, Append):
        scope = command.scope
        keys: list[tuple[AnyTable, Key]] = [(STREAM, (scope,)), (EPOCH, EPOCH_KEY)]
        if command.key is not None:
            keys.append((RECEIPT, (scope, command.key)))
        if command.producer is not None:
            keys.append((PRODUCER, (scope, command.producer.packed)))
        return keys
    if isinstance(command, Bury):
        return [(GRAVE, (command.id,)), *((PRODUCER, key) for key in command.producers)]
    return [(STREAM, (command.scope,)), *([(EPOCH, EPOCH_KEY)] if isinstance(command, Create) else [])]


def _burial(reading: Reading, life: bytes) -> Bury:
    chunks = tuple(reading.keys(Range(CHUNK, "", (life,), ROWS_A_CHORE)))
    producers = tuple(reading.keys(Range(PRODUCER, "life", (life,), ROWS_A_CHORE)))
    return Bury(life, chunks, producers, is_last=max(len(chunks), len(producers)) < ROWS_A_CHORE)
