"""The express decision beside the rules: the same submissions give the same answers and the same rows.

Two stores run the same batches. One decides submissions by `decide_plain` and leaves the rest to the rules, the other
decides every submission by the rules, in the order in which they arrived. `python -m tests.events.rules.differential
--cases 1000000` runs as many items as you like.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

from semel.engine.batch import run, steps_of
from semel.engine.contract import Write
from semel.engine.group_commit import QueuedWrite, drive
from semel.kernel.keys import pack
from semel.surfaces.events.commands import (
    PAYLOAD_TOO_LARGE,
    VALIDATION_FAILED,
    EventItem,
    EventPrune,
    EventRejection,
    EventSubmit,
)
from semel.surfaces.events.contract import Events
from semel.surfaces.events.rules.event_log import digest
from semel.surfaces.events.rules.partitions import PartitionSet, checked
from semel.surfaces.events.rules.plain_submit import PlainSubmit
from semel.surfaces.events.tables import EVENT, EVENT_PARTITION, EVENT_PLACE, TABLES, EventRow
from tests.engine.toy import ToyWorld
from tests.harness.beside import Rows, Side, compare_steps, main

IDS = tuple(f"e{number}" for number in range(40))
NAMES = (("a",), ("a", "b"), ("b",), ("c", "a", "b"))
FLAW = EventRejection(VALIDATION_FAILED, (("event.type", "must be a non-empty string"),))
EXCESS = EventRejection(PAYLOAD_TOO_LARGE, (("event", "is too large"),))


class Comparison:
    """Runs batches on both sides and compares them."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._world = ToyWorld()
        self._events = Events()
        self._fast, self._full = Side(TABLES, self._world), Side(TABLES, self._world)
        self._lasts: dict[bytes, int] = {}
        self.items = self.express = self.left = 0

    def step(self) -> None:
        """One batch of plain submissions, and now and then another command."""
        chance = self._chance
        if chance.random() < 0.3:
            self._world.pass_ms(chance.choice((-50, 1, 10, 1_000)))
        if chance.random() < 0.05:
            self._prune()
        writes = [self._submission() for _ in range(chance.randrange(1, 16))]
        plain = [PlainSubmit(self._events, command, 100) for command in writes]
        result = drive(steps_of(self._fast.around, [], plain=plain))
        assert not result.failed
        self.express += sum(len(one.command.items) for one, _ in result.plain)
        fast = [answer for _, answer in result.plain]
        if result.left:
            later = run(self._fast.around, [QueuedWrite(one.write) for one in result.left])
            assert not later.failed
            fast += [outcome.answer for _, outcome in later.decided]
            self.left += len(result.left)
        full: list[Any] = []
        for command in writes:
            alone = run(self._full.around, [QueuedWrite(Write(self._events, command))])
            assert not alone.failed
            full += [outcome.answer for _, outcome in alone.decided]
        assert fast == full
        rows = self._fast.rows()
        assert rows == self._full.rows()
        self._check_ends(rows)

    def _check_ends(self, rows: Rows) -> None:
        """The row of each partition has its last event, even if that was pruned, and the number of kept events."""
        kept = Counter(row.name for row in rows[EVENT_PLACE].values())
        for row in rows[EVENT_PLACE].values():
            self._lasts[row.name] = max(self._lasts.get(row.name, 0), row.committed_id)
        assert {row.name: (row.last_id, row.kept) for row in rows[EVENT_PARTITION].values()} == {
            name: (last, kept[name]) for name, last in self._lasts.items()
        }

    def _prune(self) -> None:
        """Forget the oldest event on both sides."""
        with self._fast.store.read() as snapshot:
            rows: Sequence[EventRow] = list(snapshot.page(EVENT, 0, None, 1, 2**40))
        if rows:
            names = tuple(name.encode() for name in json.loads(rows[0].partitions))
            command = EventPrune(((rows[0].committed_id, names),))
            for side in (self._fast, self._full):
                assert not run(side.around, [QueuedWrite(Write(self._events, command))]).failed

    def _submission(self) -> EventSubmit:
        chance = self._chance
        count = chance.choice((1, 1, 1, 2, 3, 8))
        is_odd = chance.random() < 0.1
        ids = [chance.randbytes(8).hex() if chance.random() < 0.8 else chance.choice(IDS) for _ in range(count)]
        items = tuple(self._item(one, is_odd) for one in dict.fromkeys(ids))
        self.items += len(items)
        return EventSubmit(items, chance.choice(("web", "tab")), chance.randbytes(4), stops=chance.random() < 0.5)

    def _item(self, sent_id: str, is_odd: bool) -> EventItem:
        chance = self._chance
        event = {"type": "t", "n": 0 if chance.random() < 0.95 else 1}
        partitions = checked(NAMES[0] if chance.random() < 0.9 else chance.choice(NAMES))
        content = digest(partitions.names, event)
        name = sent_id.encode()
        flaw = FLAW if is_odd and chance.random() < 0.3 else None
        excess = EXCESS if is_odd and flaw is None and chance.random() < 0.3 else None
        if flaw is not None:
            return EventItem(sent_id, b"", b"", b"", partitions, None, b"", flaw)
        expected = self._expected(partitions) if chance.random() < 0.04 else None
        return EventItem(sent_id, name, pack(name), content, partitions, event, b'{"type":"t"}', None, excess, expected)

    def _expected(self, partitions: PartitionSet) -> int:
        """A watermark that a submitter expects: as it is before the batch, or near to it, or of an empty partition."""
        last = max(self._lasts.get(key, 0) for key in partitions.keys)
        return self._chance.choice((last, last, last + 1, 0))


if __name__ == "__main__":
    main(__doc__, compare_steps(Comparison, 60, "items"))
