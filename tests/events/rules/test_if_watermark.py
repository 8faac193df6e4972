"""An expected watermark: the table of its verdicts, decided by the rules on a store in memory."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from semel.engine.batch import run
from semel.engine.contract import Write
from semel.engine.group_commit import QueuedWrite
from semel.kernel.keys import pack
from semel.surfaces.events.commands import (
    PAYLOAD_TOO_LARGE,
    VALIDATION_FAILED,
    WATERMARK_MISMATCH,
    Candidate,
    EventCommitted,
    EventItem,
    EventNotProcessed,
    EventPrune,
    EventRejection,
    EventResult,
    EventSubmit,
)
from semel.surfaces.events.contract import Events
from semel.surfaces.events.rules.event_log import digest
from semel.surfaces.events.rules.partitions import checked
from semel.surfaces.events.tables import TABLES
from tests.engine.toy import ToyWorld
from tests.events.rules.differential import EXCESS
from tests.harness.beside import Side


class Log:
    """A log whose partition `a` ends at 1, whose partition `b` ends at 3, and whose partition `c` has no event."""

    def __init__(self) -> None:
        self.events = Events(_forbid)
        self.side = Side(TABLES, ToyWorld())
        self.submit(item("one", "a"), item("two", "b"), item("three", "b"))

    def submit(self, *items: EventItem, stops: bool = False) -> list[EventResult]:
        """Decide the items of one request."""
        return self.together(EventSubmit(items, "web", b"", stops))[0]

    def together(self, *commands: EventSubmit | EventPrune) -> list[list[EventResult]]:
        """Decide these commands in one batch."""
        result = run(self.side.around, [QueuedWrite(Write(self.events, command)) for command in commands])
        assert not result.failed
        return [list(getattr(outcome.answer, "results", ())) for _, outcome in result.decided]

    def rows(self) -> int:
        """The number of rows, of all tables."""
        return sum(map(len, self.side.rows().values()))


def _forbid(candidate: Candidate, earlier: object) -> list[tuple[str, str]]:
    return [("event", "is forbidden")] if candidate.id == "forbidden" else []


def item(sent_id: str, *names: str, expected: int | None = None, value: int = 0) -> EventItem:
    """An item that is committed unless its partitions have another watermark than the expected one."""
    partitions, event, name = checked(names), {"type": "t", "value": value}, sent_id.encode()
    content = digest(partitions.names, event)
    return EventItem(sent_id, name, pack(name), content, partitions, event, b"{}", if_watermark=expected)


class Verdict(NamedTuple):
    """The answer to one item, at a log whose last event is 3."""

    item: EventItem
    answer: int | str
    """The committed id, or the reason of the rejection."""
    watermark: int | None = None


VERDICTS = {
    "none is expected": Verdict(item("x", "a"), 4),
    "the last event of the partition": Verdict(item("x", "a", expected=1), 4),
    "the last event of the log, not of the partition": Verdict(item("x", "a", expected=3), WATERMARK_MISMATCH, 1),
    "an earlier event of the partition": Verdict(item("x", "b", expected=2), WATERMARK_MISMATCH, 3),
    "a later position": Verdict(item("x", "b", expected=4), WATERMARK_MISMATCH, 3),
    "no event, and there is none": Verdict(item("x", "c", expected=0), 4),
    "no event, and there is one": Verdict(item("x", "a", expected=0), WATERMARK_MISMATCH, 1),
    "an event, and there is none": Verdict(item("x", "c", expected=3), WATERMARK_MISMATCH, 0),
    "several: the last event of all": Verdict(item("x", "a", "b", "c", expected=3), 4),
    "several: the last event of one of them": Verdict(item("x", "a", "b", expected=1), WATERMARK_MISMATCH, 3),
    "several without an event": Verdict(item("x", "c", "d", expected=0), 4),
    "a repeated event, although the partition has gone on": Verdict(item("two", "b", expected=0), 2),
    "a repeated event, with the watermark of now": Verdict(item("two", "b", expected=3), 2),
    "other content under a known id": Verdict(item("two", "b", expected=3, value=1), VALIDATION_FAILED),
    "too large goes before": Verdict(item("x", "a", expected=0)._replace(excess=EXCESS), PAYLOAD_TOO_LARGE),
    "the validator comes behind": Verdict(item("forbidden", "a", expected=0), WATERMARK_MISMATCH, 1),
    "the validator is asked": Verdict(item("forbidden", "a", expected=1), VALIDATION_FAILED),
}


@pytest.mark.parametrize("verdict", VERDICTS.values(), ids=VERDICTS)
def test_an_expected_watermark_has_its_verdict(verdict: Verdict) -> None:
    log = Log()
    before = log.rows()
    [result] = log.submit(verdict.item)
    if isinstance(verdict.answer, int):
        assert isinstance(result, EventCommitted)
        assert (result.committed_id, result.is_new) == (verdict.answer, verdict.answer == 4)
    else:
        assert isinstance(result, EventRejection)
        assert (result.reason, result.watermark) == (verdict.answer, verdict.watermark)
        assert log.rows() == before


def test_of_two_items_that_expect_the_same_watermark_the_first_wins() -> None:
    for is_one_request in (True, False):
        log, rivals = Log(), (item("x", "a", expected=1), item("y", "a", expected=1))
        if is_one_request:
            first, second = log.submit(*rivals)
        else:
            [first], [second] = log.together(*(EventSubmit((one,), "web", b"") for one in rivals))
        assert isinstance(first, EventCommitted)
        assert isinstance(second, EventRejection)
        assert (second.reason, second.watermark) == (WATERMARK_MISMATCH, first.committed_id)


def test_a_later_item_sees_the_watermark_behind_an_earlier_one() -> None:
    results = Log().submit(item("x", "a", expected=1), item("y", "a", expected=4), item("z", "a", "b", expected=5))
    assert [result.committed_id for result in results if isinstance(result, EventCommitted)] == [4, 5, 6]


def test_a_rejected_item_moves_no_watermark_and_may_succeed_later() -> None:
    log = Log()
    [refused] = log.submit(item("x", "a", expected=0))
    assert isinstance(refused, EventRejection)
    assert [one for one in log.submit(item("x", "a", expected=refused.watermark)) if isinstance(one, EventCommitted)]


def test_a_request_that_stops_is_stopped_by_a_mismatch() -> None:
    _, blocked = Log().submit(item("x", "a", expected=0), item("y", "c"), stops=True)
    assert blocked == EventNotProcessed("x")


def test_pruning_leaves_the_watermark() -> None:
    log = Log()
    log.together(EventPrune(((1, (b"a",)), (2, (b"b",)), (3, (b"b",)))))
    stale, fits = log.submit(item("x", "a", expected=0), item("y", "b", expected=3))
    assert isinstance(stale, EventRejection)
    assert stale.watermark == 1
    assert isinstance(fits, EventCommitted)
