"""One subscriber between its sink and a feed: what it reads, what it sends, and what it must never send.

The log here is a list, and the test decides when a look at it comes back, so that every interleaving is exact.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Sequence
from typing import Any, cast

import pytest

from semel.surfaces.events import subscriber as module
from semel.surfaces.events.feed import EventFeed
from semel.surfaces.events.reading import EventPage
from semel.surfaces.events.rules.event_types import EventTypes, type_of
from semel.surfaces.events.subscriber import EventSubscriber, SubscriberMode
from semel.surfaces.events.tables import EventRow


def event(committed_id: int, *names: str, origin: bytes = b"other", kind: str = "t") -> EventRow:
    partitions = ("[" + ",".join(f'"{name}"' for name in names) + "]").encode()
    text = b'{"type":"%s"}' % kind.encode()
    return EventRow(committed_id, b"%d" % committed_id, b"c", origin, 1, partitions, text)


Look = tuple[frozenset[str], int, int | None, EventTypes]


class Sink:
    """Keeps what it is sent."""

    def __init__(self) -> None:
        self.origin = b"own"
        self.is_full = False
        self.sent: list[int] = []
        self.words: str | None = None

    @property
    def audience(self) -> Hashable:
        return "all"

    def frame(self, row: EventRow) -> bytes:
        return b"%d" % row.committed_id

    def push(self, frame: bytes) -> None:
        self.sent.append(int(frame))

    def pruned(self, pruned_to: int) -> bool:
        self.fail(f"pruned to {pruned_to}")
        return False

    def fail(self, message: str) -> None:
        self.words = message


class Log:
    """Stands where the feed is: looks come back when the test says so."""

    def __init__(self, rows: Sequence[EventRow]) -> None:
        self.rows = list(rows)
        self.position = 0
        self.live: list[EventSubscriber] = []
        self.looks: list[tuple[Look, asyncio.Future[EventPage]]] = []

    def admits(self, cursor: int) -> bool:
        return cursor >= self.last

    def join(self, subscriber: EventSubscriber) -> None:
        self.position = self.last
        self.live.append(subscriber)

    def leave(self, subscriber: EventSubscriber) -> None:
        self.live.remove(subscriber)

    def count(self, sent: int) -> None:
        pass

    async def wait_for_answer(self, row: EventRow) -> None:
        pass

    async def read(self, look: Callable[[Any], Any]) -> EventPage:
        waiting: asyncio.Future[EventPage] = asyncio.get_running_loop().create_future()
        self.looks.append((look(None), waiting))
        return await waiting

    @property
    def last(self) -> int:
        return self.rows[-1].committed_id if self.rows else 0

    async def answer(self, place: int = 0) -> None:
        """Let the oldest look come back with what the log holds now."""
        (names, after, upto, types), waiting = self.looks.pop(place)
        top = self.last if upto is None else min(upto, self.last)
        found = [row for row in self.rows if after < row.committed_id <= top and any(n in names for n in _names(row))]
        found = [row for row in found if types is None or type_of(row.event) in types]
        waiting.set_result(EventPage(found, found[-1].committed_id if found else after, top, False))
        await settle()


def _names(row: EventRow) -> list[str]:
    return [name.strip('"') for name in row.partitions.decode()[1:-1].split(",")]


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 10))


@pytest.fixture(autouse=True)
def _looks_are_their_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(
        reading: Any, names: frozenset[str], since: int, to: int | None, limit: int, budget: int, *, types: EventTypes
    ) -> Look:
        return names, since, to, types

    monkeypatch.setattr(module, "history", asked)


def subscribed(log: Log, sink: Sink) -> EventSubscriber:
    return EventSubscriber(cast(EventFeed, log), sink, 1_000)


def test_a_new_subscriber_is_sent_what_comes_after_its_watermark() -> None:
    async def scenario() -> None:
        log, sink = Log([event(1, "a"), event(2, "a"), event(3, "b"), event(4, "a", origin=b"own")]), Sink()
        one = subscribed(log, sink)
        one.subscribe(1, frozenset("a"))
        one.release()
        await settle()
        await log.answer()
        assert (sink.sent, one.mode, log.live) == ([2], SubscriberMode.LIVE, [one])

    run(scenario())


def test_the_old_set_counts_up_to_the_watermark_and_the_new_one_behind_it() -> None:
    async def scenario() -> None:
        log, sink = (
            Log([event(1, "a"), event(2, "b"), event(3, "a"), event(4, "a"), event(5, "b"), event(6, "c")]),
            Sink(),
        )
        one = subscribed(log, sink)
        one.subscribe(0, frozenset("a"))
        one.hold()
        one.subscribe(3, frozenset("bc"))
        one.release()
        await settle()
        await log.answer()
        await log.answer()
        assert sink.sent == [1, 3, 5, 6]
        assert one.mode is SubscriberMode.LIVE

    run(scenario())


def test_a_look_from_before_a_change_of_subscription_is_void() -> None:
    async def scenario() -> None:
        log, sink = Log([event(1, "a")]), Sink()
        one = subscribed(log, sink)
        one.subscribe(0, frozenset("a"))
        one.release()
        await settle()
        log.rows += [event(2, "b"), event(3, "a"), event(4, "b")]
        one.hold()
        one.subscribe(1, frozenset("ab"))
        one.release()
        await settle()
        await log.answer()  # of the look that began before: it saw the events of `a` up to 4
        assert sink.sent == []
        while log.looks:
            await log.answer()
        assert sink.sent == [1, 2, 3, 4]
        assert one.mode is SubscriberMode.LIVE

    run(scenario())


def test_nothing_is_sent_while_it_is_held() -> None:
    async def scenario() -> None:
        log, sink = Log([event(1, "a")]), Sink()
        one = subscribed(log, sink)
        one.subscribe(0, frozenset("a"))
        one.release()
        await settle()
        one.hold()
        await log.answer()
        assert (sink.sent, one.mode) == ([], SubscriberMode.HELD)
        one.release()
        await settle()
        await log.answer()
        assert (sink.sent, one.mode) == ([1], SubscriberMode.LIVE)

    run(scenario())


def test_a_full_sink_is_left_to_read_the_log_later() -> None:
    async def scenario() -> None:
        log, sink = Log([event(1, "a")]), Sink()
        one = subscribed(log, sink)
        one.subscribe(1, frozenset("a"))
        one.release()
        await settle()
        assert one.mode is SubscriberMode.LIVE
        log.rows += [event(2, "a"), event(3, "a")]
        sink.is_full = True
        assert not one.take(log.rows[1], b"2", before=1)
        assert (one.mode, log.live, one.cursor) == (SubscriberMode.LAGGING, [], 1)
        sink.is_full = False
        one.drained()
        await settle()
        await log.answer()
        assert (sink.sent, one.mode) == ([2, 3], SubscriberMode.LIVE)

    run(scenario())


def test_an_event_is_taken_once_and_never_back_to_its_origin() -> None:
    async def scenario() -> None:
        log, sink = Log([]), Sink()
        one = subscribed(log, sink)
        one.subscribe(0, frozenset("ab"))
        one.release()
        await settle()
        both, own = event(1, "a", "b"), event(2, "a", origin=b"own")
        assert [one.take(both, b"1", 0), one.take(both, b"1", 0), one.take(own, b"2", 1)] == [True, False, False]
        assert (sink.sent, one.cursor) == ([1], 2)

    run(scenario())


def test_what_the_client_was_answered_is_not_sent_to_it_again() -> None:
    """It has submitted the same item: the recorded commit came as its answer, before the event came this way."""

    async def scenario() -> None:
        log, sink = Log([event(1, "a"), event(2, "a")]), Sink()
        one = subscribed(log, sink)
        one.subscribe(0, frozenset("a"))
        one.skip(1)
        one.release()
        await settle()
        await log.answer()
        assert (sink.sent, one.mode) == ([2], SubscriberMode.LIVE)
        one.skip(3)
        one.skip(2)  # was sent before: nothing is to be skipped for it
        assert [one.take(event(3, "a"), b"3", 2), one.take(event(4, "a"), b"4", 3)] == [False, True]
        assert sink.sent == [2, 4]

    run(scenario())


def test_what_was_pruned_before_it_was_sent_is_not_passed_over_in_silence() -> None:
    async def scenario() -> None:
        log, sink = Log([event(1, "a")]), Sink()
        one = subscribed(log, sink)
        one.subscribe(0, frozenset("a"))
        one.release()
        await settle()
        _, waiting = log.looks.pop()
        waiting.set_result(EventPage([], 1, 1, False, pruned_to=1))
        await settle()
        assert sink.sent == []
        assert sink.words is not None

    run(scenario())


def test_a_partition_added_in_the_middle_of_a_cycle_begins_at_the_cycle_s_bound() -> None:
    """What was sent of the others is beyond it already; nothing of the new one may be lost for that."""

    async def scenario() -> None:
        log, sink = Log([event(1, "a"), event(2, "b"), event(3, "a"), event(4, "b")]), Sink()
        one = subscribed(log, sink)
        one.subscribe(0, frozenset("a"))
        one.release()
        await settle()
        await log.answer()
        assert sink.sent == [1, 3]
        one.hold()
        one.subscribe(1, frozenset("ab"))
        one.release()
        await settle()
        while log.looks:
            await log.answer()
        assert sorted(sink.sent) == [1, 2, 3, 4]
        assert one.mode is SubscriberMode.LIVE

    run(scenario())


KINDS = [event(1, "a", kind="x"), event(2, "a", kind="y"), event(3, "a", kind="x"), event(4, "a", kind="y")]


def test_a_subscription_to_some_types_is_sent_these_alone() -> None:
    async def scenario() -> None:
        log, sink = Log(KINDS), Sink()
        one = subscribed(log, sink)
        one.subscribe(0, frozenset("a"), frozenset("y"))
        one.release()
        await settle()
        await log.answer()
        assert (sink.sent, one.mode, one.position) == ([2, 4], SubscriberMode.LIVE, 4)

    run(scenario())


def test_the_old_types_count_up_to_the_watermark_and_the_new_ones_behind_it() -> None:
    async def scenario() -> None:
        log, sink = Log(KINDS), Sink()
        one = subscribed(log, sink)
        one.subscribe(0, frozenset("a"), frozenset("x"))
        one.hold()
        one.subscribe(2, frozenset("a"))
        one.release()
        await settle()
        while log.looks:
            await log.answer()
        assert sink.sent == [1, 3, 4]

    run(scenario())


@pytest.mark.parametrize("types", [None, frozenset("y"), frozenset("xy")], ids=["all", "others", "more"])
def test_types_that_change_in_the_middle_of_a_cycle_miss_nothing_and_repeat_nothing(types: EventTypes) -> None:
    async def scenario() -> None:
        log, sink = Log(KINDS), Sink()
        one = subscribed(log, sink)
        one.subscribe(0, frozenset("a"), frozenset("x"))
        one.release()
        await settle()
        await log.answer()
        assert sink.sent == [1, 3]
        one.hold()
        one.subscribe(1, frozenset("a"), types)
        one.release()
        await settle()
        while log.looks:
            await log.answer()
        assert sorted(sink.sent) == [1, 2, 3, 4]
        assert one.mode is SubscriberMode.LIVE

    run(scenario())


def test_a_closed_one_sends_nothing_more() -> None:
    async def scenario() -> None:
        log, sink = Log([event(1, "a")]), Sink()
        one = subscribed(log, sink)
        one.subscribe(0, frozenset("a"))
        one.release()
        await settle()
        one.close()
        await log.answer()
        assert (sink.sent, one.mode, one.names) == ([], SubscriberMode.OFF, frozenset())

    run(scenario())
