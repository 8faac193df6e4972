"""The feed and its subscribers over a real engine: nothing lost, nothing twice, whoever comes and goes meanwhile."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Hashable
from typing import Any

from semel.engine.clock import SystemWorld
from semel.engine.contract import Write
from semel.engine.engine import Engine
from semel.kernel.keys import pack
from semel.store.memory import MemoryStore
from semel.surfaces.events.commands import EventItem, EventPrune, EventSubmit
from semel.surfaces.events.contract import Events
from semel.surfaces.events.feed import FRAMES_PER_TURN, EventFeed
from semel.surfaces.events.rules.partitions import checked
from semel.surfaces.events.subscriber import EventSubscriber, SubscriberMode
from semel.surfaces.events.tables import EventRow
from semel.surfaces.schema import TABLES


class Sink:
    """Keeps the positions of what it is sent."""

    is_full = False
    audience: Hashable = "all"

    def __init__(self, origin: bytes) -> None:
        self.origin = origin
        self.sent: list[int] = []

    def frame(self, row: EventRow) -> bytes:
        return b"%d" % row.committed_id

    def push(self, frame: bytes) -> None:
        self.sent.append(int(frame))

    def pruned(self, pruned_to: int) -> bool:
        self.fail(f"pruned to {pruned_to}")
        return False

    def fail(self, message: str) -> None:
        raise AssertionError(message)


class Node:
    """An engine over memory with a feed; answers can be held back."""

    def __init__(self) -> None:
        world = SystemWorld()
        self.engine = Engine(MemoryStore(TABLES, world.wall_ms), world)
        self.under_way: dict[bytes, asyncio.Future[object]] = {}
        self.feed = EventFeed(self.engine, lambda row: self.under_way.get(row.id), str, Counter())
        self.task = asyncio.create_task(self.feed.run())
        self._events = Events()

    async def commit(self, *ids: str, names: tuple[str, ...] = ("p",), event: bytes = b'{"type":"t"}') -> None:
        partitions = checked(names)
        items = [EventItem(one, one.encode(), pack(one.encode()), b"d" * 32, partitions, {}, event) for one in ids]
        await self.engine.submit(Write(self._events, EventSubmit(tuple(items), "c", b"submitter"), 10, len(ids)))

    async def prune(self, committed_id: int, name: bytes = b"p") -> None:
        """Forget an event."""
        await self.engine.submit(Write(self._events, EventPrune(((committed_id, (name,)),))))

    def subscriber(self, sink: Sink) -> EventSubscriber:
        return EventSubscriber(self.feed, sink, 1_000_000)

    async def stop(self) -> None:
        self.task.cancel()
        await self.engine.stop()


async def until(is_so: Any) -> None:
    for _ in range(1_000):
        if is_so():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not happen")


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 30))


def test_one_who_joins_further_back_is_not_handed_what_was_read_for_others() -> None:
    async def scenario() -> None:
        node = Node()
        gone, paging = Sink(b"a"), Sink(b"b")
        one, other = node.subscriber(gone), node.subscriber(paging)
        await node.commit("e1")
        one.subscribe(1, frozenset("p"))
        one.release()
        other.subscribe(1, frozenset("p"))
        await node.commit(*(f"e{number}" for number in range(2, 8)))
        await until(lambda: node.feed.position == 7)
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        node.under_way[b"e8"] = answer
        await node.commit("e8")
        await asyncio.sleep(0.05)
        one.close()
        other.release()  # joins the empty feed while it waits for the answer of e8
        await asyncio.sleep(0.05)
        node.under_way.clear()
        answer.set_result(None)
        await until(lambda: len(paging.sent) >= 7)
        assert (gone.sent, paging.sent) == ([*range(2, 8)], [*range(2, 9)])
        await node.stop()

    run(scenario())


def test_an_answer_goes_out_before_its_events_whichever_way_they_are_read() -> None:
    async def scenario() -> None:
        node = Node()
        sink = Sink(b"a")
        one = node.subscriber(sink)
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        node.under_way[b"e1"] = answer
        await node.commit("e1")
        one.subscribe(0, frozenset("p"))
        one.release()  # finds it in the log by itself
        await asyncio.sleep(0.05)
        assert sink.sent == []
        answer.set_result(None)
        await until(lambda: sink.sent == [1] and one.mode is SubscriberMode.LIVE)
        later: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        node.under_way[b"e2"] = later
        await node.commit("e2")  # comes by the feed
        await asyncio.sleep(0.05)
        assert sink.sent == [1]
        later.set_result(None)
        await until(lambda: sink.sent == [1, 2])
        await node.stop()

    run(scenario())


def test_a_subscription_that_grows_in_mid_cycle_sends_nothing_twice() -> None:
    async def scenario() -> None:
        node = Node()
        sink = Sink(b"a")
        one = node.subscriber(sink)
        await node.commit("h1", "h2", names=("a",))
        one.subscribe(2, frozenset("a"))
        one.release()
        await node.commit("x3", names=("a", "b"))
        await node.commit("x4", names=("b",))
        await node.commit("x5", names=("a",))
        await until(lambda: sink.sent == [3, 5])
        one.hold()
        one.subscribe(2, frozenset("ab"))
        one.release()
        await until(lambda: one.mode is SubscriberMode.LIVE)
        assert sink.sent == [3, 5, 4]
        await node.commit("x6", names=("b",))
        await until(lambda: sink.sent == [3, 5, 4, 6])
        await node.stop()

    run(scenario())


def test_a_feed_that_nobody_hangs_on_listens_to_nothing() -> None:
    async def scenario() -> None:
        node = Node()
        await asyncio.sleep(0.02)
        assert len(node.engine.signals) == 0
        for number in range(1, 4):
            sink = Sink(b"a")
            one = node.subscriber(sink)
            one.subscribe(number - 1, frozenset("p"))
            one.release()
            await until(lambda one=one: one.mode is SubscriberMode.LIVE)
            await node.commit(f"e{number}")
            await until(lambda sink=sink, number=number: sink.sent == [number])
            one.close()
            await until(lambda: len(node.engine.signals) == 0)
        await node.stop()

    run(scenario())


def test_what_was_pruned_before_the_feed_saw_it_is_not_passed_over_in_silence() -> None:
    """Its node stood still for longer than events are kept."""

    class Told(Sink):
        words = ""

        def fail(self, message: str) -> None:
            self.words = message

    async def scenario() -> None:
        node = Node()
        sink = Told(b"a")
        one = node.subscriber(sink)
        one.subscribe(0, frozenset("p"))
        one.release()
        await until(lambda: one.mode is SubscriberMode.LIVE)
        node.task.cancel()
        await node.commit("e1")
        await node.commit("e2")
        await node.prune(1)
        node.task = asyncio.create_task(node.feed.run())
        await until(lambda: sink.words != "")
        assert sink.sent == []
        one.close()
        later = Sink(b"b")
        other = node.subscriber(later)
        other.subscribe(1, frozenset("p"))
        other.release()
        await until(lambda: later.sent == [2])
        await node.stop()

    run(scenario())


def test_c1_a_live_reader_with_a_word_for_what_was_pruned_is_told_and_goes_on() -> None:
    """Its node stood still for longer than events are kept; who has had them all is told nothing."""

    class Told(Sink):
        def pruned(self, pruned_to: int) -> bool:
            self.sent.append(-pruned_to)
            return True

    async def scenario() -> None:
        node = Node()
        sink, ahead = Told(b"a"), Told(b"b")
        one, other = node.subscriber(sink), node.subscriber(ahead)
        one.subscribe(0, frozenset("p"))
        one.release()
        await until(lambda: one.mode is SubscriberMode.LIVE)
        node.task.cancel()
        await node.commit("e1", "e2", "e3")
        other.subscribe(2, frozenset("p"))
        other.release()
        await until(lambda: other.mode is SubscriberMode.LIVE)
        await node.prune(1)
        await node.prune(2)
        node.task = asyncio.create_task(node.feed.run())
        await until(lambda: sink.sent == [-2, 3] and ahead.sent == [3])
        await node.commit("e4")
        await until(lambda: sink.sent == [-2, 3, 4] and ahead.sent == [3, 4])
        await node.stop()

    run(scenario())


def test_a_fault_in_live_delivery_is_told_to_those_it_concerns() -> None:
    """The connection ends, so that its client comes again; the feed goes on for the others."""

    class Broken(Sink):
        words = ""

        def frame(self, row: EventRow) -> bytes:
            raise RuntimeError("cannot be shown")

        def fail(self, message: str) -> None:
            self.words = message

    async def scenario() -> None:
        node = Node()
        broken = Broken(b"a")
        one = node.subscriber(broken)
        one.subscribe(0, frozenset("p"))
        one.release()
        await until(lambda: one.mode is SubscriberMode.LIVE)
        await node.commit("e1")  # comes by the feed
        await until(lambda: broken.words != "")
        one.close()
        behind = Broken(b"b")
        other = node.subscriber(behind)
        other.subscribe(0, frozenset("p"))
        other.release()  # finds it in the log by itself
        await until(lambda: behind.words != "")
        other.close()
        well = Sink(b"c")
        third = node.subscriber(well)
        third.subscribe(0, frozenset("p"))
        third.release()
        await until(lambda: well.sent == [1])
        await node.stop()

    run(scenario())


def test_a_live_subscriber_to_some_types_is_handed_these_alone_however_large() -> None:
    async def scenario() -> None:
        node = Node()
        sinks = [Sink(b"a"), Sink(b"b"), Sink(b"c")]
        kinds = (None, frozenset({"wanted"}), frozenset({"other"}))
        for sink, types in zip(sinks, kinds, strict=True):
            one = node.subscriber(sink)
            one.subscribe(0, frozenset("p"), types)
            one.release()
        await until(lambda: len(node.feed) == 3)
        large = b'{"more":"%s","type":"wanted"}' % (b"x" * 100_000)
        for number, event in enumerate((b'{"type":"wanted"}', b'{"type":"t"}', large, b'{"type":"other"}')):
            await node.commit(f"e{number}", event=event)
        await until(lambda: node.feed.position == 4)
        assert [sink.sent for sink in sinks] == [[1, 2, 3, 4], [1, 3], [4]]
        await node.stop()

    run(scenario())


def test_a_subscriber_whose_types_do_not_occur_is_as_far_as_the_feed() -> None:
    async def scenario() -> None:
        node = Node()
        one = node.subscriber(Sink(b"a"))
        one.subscribe(0, frozenset("p"), frozenset({"never"}))
        one.release()
        await until(lambda: len(node.feed) == 1)
        await node.commit(*(f"e{number}" for number in range(5)))
        await until(lambda: one.position == 5)
        one.hold()
        assert one.cursor == 5
        await node.stop()

    run(scenario())


CROWD = 3 * FRAMES_PER_TURN + 10
"""More subscribers than are served in one turn."""


class Passes:
    """What the sinks of a crowd are sent in each pass of the event loop."""

    def __init__(self) -> None:
        self.sent = [0]
        self.after_first: Callable[[], object] | None = None
        """Called once, in the pass after the first turn."""

    def note(self) -> None:
        loop = asyncio.get_running_loop()
        if not self.sent[-1]:
            loop.call_soon(self.sent.append, 0)
        self.sent[-1] += 1
        if self.after_first is not None:
            loop.call_soon(self.after_first)
            self.after_first = None


class CountedSink(Sink):
    """One of a crowd."""

    def __init__(self, passes: Passes) -> None:
        super().__init__(b"a")
        self._passes = passes

    def push(self, frame: bytes) -> None:
        super().push(frame)
        self._passes.note()


async def crowd(node: Node, passes: Passes) -> list[EventSubscriber]:
    """A crowd that is live."""
    members = [node.subscriber(CountedSink(passes)) for _ in range(CROWD)]
    for member in members:
        member.subscribe(0, frozenset("p"))
        member.release()
    await until(lambda: len(node.feed) == CROWD)
    return members


def sent_to(member: EventSubscriber) -> list[int]:
    assert isinstance(member.sink, Sink)
    return member.sink.sent


def test_the_subscribers_of_one_event_are_served_in_turns() -> None:
    async def scenario() -> None:
        node, passes = Node(), Passes()
        members = await crowd(node, passes)
        await node.commit("e1", "e2")
        await until(lambda: sum(passes.sent) == 2 * CROWD)
        assert max(passes.sent) <= FRAMES_PER_TURN
        assert all(sent_to(member) == [1, 2] for member in members)
        await node.stop()

    run(scenario())


def test_one_who_leaves_or_joins_between_two_turns_gets_each_event_once() -> None:
    async def scenario() -> None:
        node, passes = Node(), Passes()
        members = await crowd(node, passes)
        late = [node.subscriber(Sink(b"a")) for _ in range(3)]
        for member in late:
            member.subscribe(0, frozenset("p"))
        gone, back, moved = members[-1], members[-2], members[-3]

        def between() -> None:
            assert sum(passes.sent) == FRAMES_PER_TURN
            gone.close()
            back.hold()
            moved.hold()
            moved.subscribe(moved.cursor, frozenset("q"))
            for member in (back, moved, *late):
                member.release()

        passes.after_first = between
        for number in (1, 2):
            await node.commit(f"e{number}", names=("p", "q"))
            await until(lambda number=number: node.feed.position == number)
        kept = [member for member in (*members, *late) if member is not gone]
        await until(lambda: all(member.cursor == 2 for member in kept))
        assert sent_to(gone) == []
        assert {tuple(sent_to(member)) for member in kept} == {(1, 2)}
        await node.stop()

    run(scenario())


def test_a_feed_that_all_leave_between_two_turns_begins_again_where_the_next_one_is() -> None:
    async def scenario() -> None:
        node, passes = Node(), Passes()
        members = await crowd(node, passes)
        next_one = node.subscriber(Sink(b"a"))
        next_one.subscribe(0, frozenset("p"))

        def between() -> None:
            for member in members:
                member.close()
            next_one.release()

        passes.after_first = between
        await node.commit("e1", "e2")
        await until(lambda: sent_to(next_one) == [1, 2])
        assert sum(passes.sent) == FRAMES_PER_TURN
        await node.stop()

    run(scenario())
