"""Events as a contract of the engine: one lock for the whole log, so that positions become visible in order."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import orjson

from semel.contracts.events.commands import Command, Prune, Submit
from semel.contracts.events.reading import oldest
from semel.contracts.events.rules.submit import submit
from semel.contracts.events.rules.upkeep import prune
from semel.contracts.events.tables import EVENT_HEAD, EVENT_ID, HEAD_KEY, EventRow
from semel.contracts.events.validation import Validator
from semel.engine.contract import Order, Outcome, Stage, View
from semel.engine.reading import Reading
from semel.kernel.clock import Now
from semel.store.protocol import AnyTable, Lock
from semel.store.table import Key

LOG = Lock(b"events")
PRUNED_AT_ONCE, PRUNED_BYTES = 500, 8 * 1024 * 1024


class Events:
    """The contract. Bodies older than `retention_ms` are freed; 0 keeps everything."""

    name = "events"

    def __init__(self, validator: Validator | None = None, retention_ms: int = 0) -> None:
        self._validator = validator
        self._retention_ms = retention_ms

    def locks(self, command: Command) -> Sequence[Lock]:
        """One lock, whatever the command."""
        return (LOG,)

    def needs(self, command: Command) -> Generator[Stage, View, None]:
        """The end of the log, and the memory of each id."""
        keys: list[tuple[AnyTable, Key]] = [(EVENT_HEAD, HEAD_KEY)]
        if isinstance(command, Submit):
            keys += [(EVENT_ID, (item.key,)) for item in command.items if item.flaw is None]
        yield Stage(keys=keys)

    def order(self, command: Command) -> Order | None:
        """Arrival is the order."""
        return None

    def decide(self, view: View, command: Command, now: Now) -> Outcome:
        """Judge one command."""
        if isinstance(command, Submit):
            return submit(view, command, now, self._validator)
        assert isinstance(command, Prune)
        return prune(view, command)

    def chores(self, reading: Reading) -> Sequence[Command]:
        """Events older than the retention, oldest first: times never fall along the log, so they are its beginning."""
        if not self._retention_ms:
            return ()
        cut = reading.now.expiry_ms - self._retention_ms
        old = [row for row in oldest(reading, PRUNED_AT_ONCE, PRUNED_BYTES) if row.committed_at < cut]
        return (Prune(tuple(_place(row) for row in old)),) if old else ()


def _place(row: EventRow) -> tuple[int, tuple[bytes, ...]]:
    return row.committed_id, tuple(name.encode() for name in orjson.loads(row.partitions))
