"""Followers: a commit between the look and the wait is never missed, each cause ends a wait, and no page is kept."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from semel.engine.caller import WaitingCaller
from semel.engine.follow import FOREVER, NO_END, EndCause, FollowedPage, FollowEnd, LogFollower
from semel.engine.notification import CommitNotifier
from tests.engine.rig import on_loop

TOPIC = b"log"
LONG = 3_600.0
PATIENCE_SECONDS = 10.0
"""A commit that was missed would be found at the deadline, so a deadline that ends the test proves nothing."""

T = TypeVar("T")


async def soon(work: Awaitable[T]) -> T:
    """The result of something that needs no deadline to end."""
    return await asyncio.wait_for(work, PATIENCE_SECONDS)


class Page(list[int]):
    """Entries of the log; unlike a list it can be referred to weakly."""


class Source:
    """Something that ends a follower, as a token or a connection does."""

    def __init__(self) -> None:
        self.has_come = False
        self.watchers: list[Callable[[], object]] = []

    def watch(self, watcher: Callable[[], object]) -> None:
        self.watchers.append(watcher)

    def unwatch(self, watcher: Callable[[], object]) -> None:
        self.watchers.remove(watcher)

    def come(self) -> None:
        self.has_come = True
        for watcher in list(self.watchers):
            watcher()


class Log:
    """A log, its signals, and a reader with a cursor. `at` is what happens at a point of the n-th look."""

    def __init__(self) -> None:
        self.signals = CommitNotifier()
        self.entries: list[int] = []
        self.cursor = 0
        self.looks = 0
        self.at: dict[tuple[int, str], Callable[[], object]] = {}
        self.rest_seconds = FOREVER

    def commit(self) -> None:
        self.entries.append(len(self.entries) + 1)
        self.signals.send([TOPIC])

    async def look(self) -> FollowedPage[Page]:
        self.looks += 1
        number = self.looks
        self._reach(number, "before the read")
        await asyncio.sleep(0)
        seen = Page(self.entries[self.cursor : self.cursor + 2])
        await asyncio.sleep(0)
        self._reach(number, "after the read")
        await asyncio.sleep(0)
        self.cursor += len(seen)
        return FollowedPage(seen, bool(seen), self.rest_seconds)

    def follower(self, end: FollowEnd = NO_END) -> LogFollower:
        return LogFollower(self.signals, TOPIC, end)

    def _reach(self, number: int, point: str) -> None:
        self.at.get((number, point), lambda: None)()


@pytest.mark.parametrize("point", ["before the read", "after the read"])
@on_loop
async def test_a_commit_at_any_point_of_a_look_is_given_without_a_further_signal(point: str) -> None:
    log = Log()
    log.at[1, point] = log.commit
    with log.follower() as follower:
        assert await soon(follower.follow(log.look, LONG)) == [1]


@on_loop
async def test_a_commit_between_two_calls_is_given_by_the_second() -> None:
    log = Log()
    log.commit()
    with log.follower() as follower:
        assert await soon(follower.follow(log.look, LONG)) == [1]
        log.commit()
        assert await soon(follower.follow(log.look, LONG)) == [2]


@on_loop
async def test_a_commit_during_the_wait_is_given() -> None:
    log = Log()
    with log.follower() as follower:
        waiting = asyncio.create_task(follower.follow(log.look, LONG))
        await asyncio.sleep(0.02)
        assert (log.looks, waiting.done()) == (1, False)
        log.commit()
        assert await soon(waiting) == [1]


@on_loop
async def test_a_commit_of_another_topic_costs_no_look() -> None:
    log = Log()
    with log.follower() as follower:
        waiting = asyncio.create_task(follower.follow(log.look, 0.05))
        await asyncio.sleep(0.01)
        log.signals.send([b"another"])
        assert await soon(waiting) == []
        assert log.looks == 2  # the first, and the one at the deadline


@on_loop
async def test_every_commit_is_given_once_and_in_order_however_commits_and_looks_interleave() -> None:
    log = Log()
    given: list[int] = []

    async def commit() -> None:
        for number in range(200):
            log.commit()
            for _ in range(number % 5):
                await asyncio.sleep(0)

    with log.follower() as follower:
        committing = asyncio.create_task(commit())
        while len(given) < 200:
            page: Page = await soon(follower.follow(log.look, LONG))
            given += page
        await committing
    assert given == list(range(1, 201))


def ended_by(cause: EndCause, source: Source) -> FollowEnd:
    """An end of one kind, told by a source."""
    if cause is EndCause.CREDENTIAL:
        return FollowEnd(credential_seconds=lambda: 0.0 if source.has_come else FOREVER, sources=(source,))
    if cause is EndCause.GONE:
        return FollowEnd(is_gone=lambda: source.has_come, sources=(source,))
    return FollowEnd(is_stopping=lambda: source.has_come, sources=(source,))


@pytest.mark.parametrize("cause", EndCause)
@pytest.mark.parametrize("point", ["before the read", "after the read"])
@on_loop
async def test_a_cause_that_comes_during_a_look_ends_the_follower(cause: EndCause, point: str) -> None:
    log, source = Log(), Source()
    log.at[1, point] = source.come
    with log.follower(ended_by(cause, source)) as follower:
        assert await soon(follower.follow(log.look, LONG)) == []
        assert (follower.is_over, follower.end.cause, log.looks) == (True, cause, 1)


@pytest.mark.parametrize("cause", EndCause)
@on_loop
async def test_a_cause_that_comes_during_the_wait_ends_it_after_one_more_look(cause: EndCause) -> None:
    log, source = Log(), Source()
    with log.follower(ended_by(cause, source)) as follower:
        waiting = asyncio.create_task(follower.follow(log.look, LONG))
        await asyncio.sleep(0.02)
        log.entries.append(1)  # committed before the end, and its signal is lost
        source.come()
        assert await soon(waiting) == [1]
        assert await soon(follower.follow(log.look, LONG)) == []


@on_loop
async def test_the_stop_of_the_server_wakes_all_followers() -> None:
    log, stops = Log(), [False]
    with log.follower(FollowEnd(is_stopping=lambda: stops[0])) as follower:
        waiting = asyncio.create_task(follower.follow(log.look, LONG))
        await asyncio.sleep(0.02)
        stops[0] = True
        log.signals.send_all()
        assert await soon(waiting) == []


@on_loop
async def test_a_credential_ends_a_wait_at_its_time_without_a_signal() -> None:
    log, loop = Log(), asyncio.get_running_loop()
    expires_at = loop.time() + 0.1
    with log.follower(FollowEnd(credential_seconds=lambda: expires_at - loop.time())) as follower:
        assert await soon(follower.follow(log.look, LONG)) == []
        assert loop.time() >= expires_at
        assert follower.end.cause is EndCause.CREDENTIAL
        assert log.looks < 10


@on_loop
async def test_a_caller_that_leaves_wakes_its_follower() -> None:
    log, caller = Log(), WaitingCaller()
    end = FollowEnd(is_gone=lambda: caller.gone, sources=(caller,))
    with log.follower(end) as follower:
        waiting = asyncio.create_task(follower.follow(log.look, LONG))
        await asyncio.sleep(0.02)
        caller.leave()
        assert await soon(waiting) == []
    with log.follower(end) as follower:  # it has left before
        assert await soon(follower.follow(log.look, LONG)) == []


def test_the_departure_of_the_client_comes_before_any_other_cause() -> None:
    both = FollowEnd(is_gone=lambda: True, is_stopping=lambda: True, credential_seconds=lambda: 0.0)
    assert both.cause is EndCause.GONE
    assert FollowEnd(is_stopping=lambda: True, credential_seconds=lambda: 0.0).cause is EndCause.STOP
    assert NO_END.cause is None


@on_loop
async def test_the_deadline_ends_a_wait() -> None:
    log, loop = Log(), asyncio.get_running_loop()
    began = loop.time()
    with log.follower() as follower:
        assert await follower.follow(log.look, 0) == []
        assert log.looks == 1
        assert await follower.follow(log.look, 0.05) == []
    assert 0.04 <= loop.time() - began < PATIENCE_SECONDS


@on_loop
async def test_a_lost_signal_is_made_good_at_the_next_look() -> None:
    log = Log()
    log.rest_seconds = 0.02
    with log.follower() as follower:
        waiting = asyncio.create_task(follower.follow(log.look, LONG))
        await asyncio.sleep(0.01)
        log.entries.append(1)
        assert await soon(waiting) == [1]


@on_loop
async def test_no_page_is_read_before_it_is_asked_for_and_none_is_kept() -> None:
    log = Log()
    for _ in range(6):
        log.commit()
    with log.follower() as follower:
        page = await soon(follower.follow(log.look, LONG))
        await asyncio.sleep(0.02)
        assert (page, log.looks) == ([1, 2], 1)
        kept = weakref.ref(page)
        del page
        gc.collect()
        assert kept() is None


@on_loop
async def test_what_a_look_has_seen_is_dropped_before_the_wait() -> None:
    log, seen = Log(), []

    async def look() -> FollowedPage[Page]:
        page = Page()
        seen.append(weakref.ref(page))
        return FollowedPage(page, is_ready=False)

    with log.follower() as follower:
        waiting = asyncio.create_task(follower.follow(look, 0.1))
        await asyncio.sleep(0.02)
        gc.collect()
        assert seen[0]() is None
        await soon(waiting)


@on_loop
async def test_a_follower_leaves_no_watch_behind() -> None:
    log, source, caller = Log(), Source(), WaitingCaller()
    with log.follower(FollowEnd(sources=(source, caller))) as follower:
        assert (len(log.signals), len(source.watchers)) == (1, 1)
        follower.wake()
        await follower.follow(log.look, 0)
    assert (len(log.signals), source.watchers) == (0, [])
    follower.wake()
    caller.leave()  # tells no one


@on_loop
async def test_an_error_of_a_look_reaches_the_caller_and_the_follower_can_go_on() -> None:
    log = Log()

    async def fail() -> FollowedPage[Page]:
        raise RuntimeError

    with log.follower() as follower:
        with pytest.raises(RuntimeError):
            await soon(follower.follow(fail, LONG))
        log.commit()
        assert await soon(follower.follow(log.look, LONG)) == [1]
