"""Streams as a contract of the engine: locks, rows, decisions and chores."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence

from semel.engine.contract import DecisionResult, Order, Stage, View, Write
from semel.engine.plain_write import LoadedByKey, PlainResult
from semel.engine.reading import Reading
from semel.kernel.clock import Now
from semel.kernel.verdict import Window
from semel.store.protocol import AnyTable, Lock, Range
from semel.store.table import Key
from semel.surfaces.epoch import EPOCH, EPOCH_KEY
from semel.surfaces.streams.commands import (
    Append,
    Create,
    Delete,
    Expire,
    Purge,
    Release,
    Retention,
    StreamCommand,
    Trim,
)
from semel.surfaces.streams.retention_cut import trim_of
from semel.surfaces.streams.rules.append import append, sequence_of
from semel.surfaces.streams.rules.expiry import SWEEP_GRACE_MS
from semel.surfaces.streams.rules.forks import release
from semel.surfaces.streams.rules.lifecycle import create, delete, expire, purge
from semel.surfaces.streams.rules.plain_append import PlainAppend, decide_plain, plain_keys
from semel.surfaces.streams.rules.retention import trim
from semel.surfaces.streams.subscriptions.rules.links import GLOBS_SHARED, glob_ranges, link_keys, linked_range
from semel.surfaces.streams.subscriptions.tables import MOVED
from semel.surfaces.streams.tables import CHUNK, FORK, PRODUCER, RECEIPT, RETENTION, STREAM, TOMBSTONE

CHORES = 32
TRIMS = 8
ROWS_PER_CHORE = 500


class Streams:
    """The contract of streams. `keep` is the retention of idempotency keys, and `retention` that of streams whose
    request names none.
    """

    name = "streams"

    def __init__(self, keep: Window, retention: Retention | None = None) -> None:
        self._keep = keep
        self._retention = retention

    def locks(self, command: StreamCommand) -> Sequence[Lock]:
        """One lock for each stream; a fork also locks its source. Rows of an ended stream have a lock of their own,
        except those of producers: these may belong to a newer stream of the same name.
        """
        if isinstance(command, Purge):
            scopes = {scope for scope, _ in command.producers}
            return (Lock(b"grave:" + command.id), *(Lock(b"stream:" + scope) for scope in scopes))
        if isinstance(command, Release):
            graves = (Lock(b"grave:" + life) for life in {command.id, command.source_id})
            return (*graves, Lock(b"stream:" + command.source_scope))
        own = Lock(b"stream:" + command.scope)
        if not isinstance(command, Create):
            return (own,)
        source = None if command.fork is None else Lock(b"stream:" + command.fork.source_scope)
        return (GLOBS_SHARED, own) if source is None or source == own else (GLOBS_SHARED, own, source)

    def needs(self, command: StreamCommand) -> Generator[Stage, View, None]:
        """The keys of the request; then the fork row of a stream that is one, and what its subscriptions need."""
        ranges = [*glob_ranges(command.path), linked_range(command.scope)] if isinstance(command, Create) else ()
        view = yield Stage(_keys(command), ranges)
        if isinstance(command, Purge | Release | Trim):
            return
        stream, more = view.get(STREAM, (command.scope,)), list[tuple[AnyTable, Key]]()
        if isinstance(command, Create):
            more += link_keys(view, command.scope, command.path)
        elif stream is not None and stream.subscribed:
            more.append((MOVED, (command.scope,)))
        if stream is not None and stream.inherited >= 0 and not isinstance(command, Append):
            more.append((FORK, (stream.id,)))
        if more:
            yield Stage(more)

    def order(self, command: StreamCommand) -> Order | None:
        """The appends of one producer epoch are a sequence."""
        return sequence_of(command) if isinstance(command, Append) else None

    def decide(self, view: View, command: StreamCommand, now: Now) -> DecisionResult:
        """Decide one command."""
        if isinstance(command, Append):
            return append(view, command, now, self._keep)
        if isinstance(command, Create):
            return create(view, command, now, self._retention)
        if isinstance(command, Trim):
            return trim(view, command)
        if isinstance(command, Purge):
            return purge(view, command)
        return self._ended(view, command, now)

    def _ended(self, view: View, command: Delete | Expire | Release, now: Now) -> DecisionResult:
        """Decide a command after which the source of a fork may have to be released: that is the next write."""
        if isinstance(command, Release):
            result, following = DecisionResult(None), release(view, command, now)
        elif isinstance(command, Delete):
            result, following = delete(view, command, now)
        else:
            result, following = expire(view, command, now)
        return result if following is None else result._replace(follow_ups=(Write(self, following),))

    def plain_keys(self, writes: Sequence[PlainAppend]) -> Mapping[AnyTable, Iterable[Key]]:
        """The rows that plain appends need."""
        return plain_keys(writes)

    def decide_plain(self, rows: LoadedByKey, writes: Sequence[PlainAppend], now: Now) -> PlainResult:
        """Decide plain appends, and leave the others."""
        return decide_plain(rows, writes, now, self._keep)

    def chores(self, reading: Reading) -> Sequence[StreamCommand]:
        """Commands that delete expired streams, free the rows of deleted ones, and trim streams with a retention."""
        ended = Range(STREAM, "deadline", (), CHORES, stop=(reading.now.expiry_ms - SWEEP_GRACE_MS,))
        chores: list[StreamCommand] = [Expire(stream.scope) for stream in reading.range(ended)]
        for grave in reading.range(Range(TOMBSTONE, "forks", (0,), CHORES)):
            chores.extend(_freeing(reading, grave.id))
        due = reading.range(Range(RETENTION, "due", (), TRIMS, stop=(reading.now.expiry_ms + 1,)))
        return [*chores, *(trim_of(reading, kept, ROWS_PER_CHORE) for kept in due)]


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
        return [(TOMBSTONE, (command.id,)), (FORK, (command.id,)), *((PRODUCER, key) for key in command.producers)]
    if isinstance(command, Release):
        source = command.source_scope
        lives: list[tuple[AnyTable, Key]] = [(FORK, (command.id,)), (FORK, (command.source_id,))]
        return [*lives, (TOMBSTONE, (command.source_id,)), (STREAM, (source,)), (RETENTION, (source,))]
    keys = [(STREAM, (command.scope,)), (RETENTION, (command.scope,))]
    if isinstance(command, Create):
        keys.append((EPOCH, EPOCH_KEY))
        if command.fork is not None:
            source = command.fork.source_scope
            keys += [(STREAM, (source,)), (RETENTION, (source,)), (FORK, (command.fork.source_id,))]
    return keys


def _freeing(reading: Reading, life: bytes) -> list[StreamCommand]:
    """The next writes that free an ended stream: its source is released before its tombstone is deleted."""
    chunks = tuple(reading.keys(Range(CHUNK, "", (life,), ROWS_PER_CHORE)))
    producers = tuple(reading.keys(Range(PRODUCER, "life", (life,), ROWS_PER_CHORE)))
    is_last = max(len(chunks), len(producers)) < ROWS_PER_CHORE
    fork = reading.get(FORK, (life,))
    purge_rows = Purge(life, chunks, producers, is_last=is_last)
    return [purge_rows] if fork is None else [Release(life, fork.source_scope, fork.source_id), purge_rows]
