"""Events as a contract of the engine: one lock for the whole log, so that positions become visible in order."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence

import orjson

from semel.engine.contract import DecisionResult, Order, Stage, View
from semel.engine.plain_write import LoadedByKey, PlainResult
from semel.engine.reading import Reading
from semel.kernel.clock import Now
from semel.store.protocol import AnyTable, Lock
from semel.store.table import Key
from semel.surfaces.events.commands import EventCommand, EventPrune, EventSubmit, Validator
from semel.surfaces.events.reading import oldest
from semel.surfaces.events.rules.event_log import prune, submit
from semel.surfaces.events.rules.plain_submit import PlainSubmit, decide_plain, plain_keys
from semel.surfaces.events.tables import EVENT_HEAD, EVENT_ID, EVENT_PARTITION, HEAD_KEY, LOG, EventRow

PRUNED_AT_ONCE, PRUNED_BYTES = 500, 8 * 1024 * 1024


class Events:
    """The contract. Bodies older than `retention_ms` are freed; 0 keeps everything."""

    name = "events"

    def __init__(self, validator: Validator | None = None, retention_ms: int = 0) -> None:
        self._validator = validator
        self._retention_ms = retention_ms

    def locks(self, command: EventCommand) -> Sequence[Lock]:
        """The same lock for every command."""
        return (LOG,)

    def needs(self, command: EventCommand) -> Generator[Stage, View, None]:
        """The end of the log and of each partition, and the stored row of each event id."""
        keys: list[tuple[AnyTable, Key]] = [(EVENT_HEAD, HEAD_KEY)]
        if isinstance(command, EventSubmit):
            keys += [(EVENT_ID, (item.key,)) for item in command.items if item.flaw is None]
            names = {name: None for item in command.items for name in item.partitions.keys}
        else:
            names = {name: None for _, some in command.places for name in some}
        keys += [(EVENT_PARTITION, (name,)) for name in names]
        yield Stage(keys=keys)

    def order(self, command: EventCommand) -> Order | None:
        """None: events are decided in order of arrival."""
        return None

    def decide(self, view: View, command: EventCommand, now: Now) -> DecisionResult:
        """Decide one command."""
        if isinstance(command, EventSubmit):
            return submit(view, command, now, self._validator)
        assert isinstance(command, EventPrune)
        return prune(view, command)

    @property
    def takes_plain(self) -> bool:
        """Whether the express decision may decide: it calls no validator."""
        return self._validator is None

    def plain_keys(self, writes: Sequence[PlainSubmit]) -> Mapping[AnyTable, Iterable[Key]]:
        """The rows that plain submissions need."""
        return plain_keys(writes)

    def decide_plain(self, rows: LoadedByKey, writes: Sequence[PlainSubmit], now: Now) -> PlainResult:
        """Decide plain submissions, and leave the others."""
        return decide_plain(rows, writes, now)

    def chores(self, reading: Reading) -> Sequence[EventCommand]:
        """Commands that prune events older than the retention. Commit times never fall, so these come first."""
        if not self._retention_ms:
            return ()
        cut = reading.now.expiry_ms - self._retention_ms
        old = [row for row in oldest(reading, PRUNED_AT_ONCE, PRUNED_BYTES) if row.committed_at < cut]
        places = tuple(_place(row) for row in old)
        return (EventPrune(places),) if places else ()


def _place(row: EventRow) -> tuple[int, tuple[bytes, ...]]:
    return row.committed_id, tuple(name.encode() for name in orjson.loads(row.partitions))
