"""A closed-loop load generator for deltas: so many clients, each on its own connection with one request under way.

Requests are made before the clock starts, because the generator shares two cores with the server it measures; of an
answer two counts are looked at, and one that is not the expected one ends the run.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from bench.deltas_wire import Author, known, late_rows, new_rows, own_rows, pull, push, shared_rows
from bench.jobs_depth import processor_us
from bench.jobs_load import BrokenError, Connection, run
from bench.probes import committed
from tests.harness.server import RunningServer

CLIENTS = 8
SINGLE, BATCH = 1, 100
PUSHES = {SINGLE: 400, BATCH: 16}
"""Of each client in one measurement, by the deltas of a push."""
WARMING = 0.2
"""So many more, as a share, come before the clock starts."""
PAGE = 1_000
PAGES = 20
_CURSOR = re.compile(rb'"serverHlc":"([0-9]+)"')


class Request(NamedTuple):
    """A push, and what must be said of it."""

    content: bytes
    accepted: int
    duplicates: int


class Shape(NamedTuple):
    """One way to push."""

    name: str
    drafts: Callable[[Author, int], Iterator[bytes]]
    batch: int

    @property
    def are_known(self) -> bool:
        """Whether every delta of it is stored already."""
        return self.drafts is known

    @property
    def is_extreme(self) -> bool:
        """Whether it is told and not held to the target: no client's deltas come from all of the past at once."""
        return self.drafts is late_rows

    def requests(self, author: Author, stored_deltas: int, count: int) -> list[Request]:
        """So many pushes of one client."""
        drafts = self.drafts(author, stored_deltas)
        duplicates = self.batch if self.are_known else 0
        return [
            Request(push(author.client, list(itertools.islice(drafts, self.batch))), self.batch, duplicates)
            for _ in range(count)
        ]


SHAPES = tuple(
    Shape(name, drafts, batch)
    for name, drafts in (
        ("new rows", new_rows),
        ("new rows from any time of the past", late_rows),
        ("edits of 100 rows of one's own", own_rows),
        ("edits of 100 rows that all edit", shared_rows),
        ("known deltas", known),
    )
    for batch in (SINGLE, BATCH)
)


class Rate(NamedTuple):
    """One measurement of pushes or of pulls."""

    per_second: float
    processor_us: float
    """Of the server, for one delta."""
    a_commit: float | None = None
    """Pushes that shared a sync."""
    deltas: int = 0
    """How many were counted."""


class Pusher(Connection):
    """A connection that stays open and sends what it is given, one after another."""

    def begin(self) -> None:
        """Wait for something to send."""
        self.deltas = 0

    def work_off(self, requests: Iterator[Request]) -> asyncio.Future[None]:
        """Send what is left of these."""
        self._requests = requests
        self.over = asyncio.get_running_loop().create_future()
        self._next()
        return self.over

    def answered(self, body: bytes) -> None:
        """Look at the counts and go on."""
        _, accepted, duplicates = self._sent
        if b'"accepted":%d,' % accepted not in body or not re.search(rb'"duplicates":%d[,}]' % duplicates, body):
            raise BrokenError(f"not {accepted} accepted with {duplicates} duplicates: {body[:500]!r}")
        self.deltas += accepted
        self._next()

    def _next(self) -> None:
        request = next(self._requests, None)
        if request is None:
            self.over.set_result(None)
        else:
            self._sent = request
            self.transport.write(request.content)


class Puller(Connection):
    """A connection that pulls page after page, as one new client after another, each from the beginning."""

    def __init__(self, pages: int | None) -> None:
        super().__init__()
        self._left = pages
        self.entries = self.pages = self._clients = 0

    def begin(self) -> None:
        """The first page of another client."""
        self._clients += 1
        self._name = f"reader-{random.getrandbits(64):016x}"
        self._ask(b"0")

    def answered(self, body: bytes) -> None:
        """Count its entries and go on behind them."""
        self.pages += 1
        self.entries += body.count(b'"deltaId"')
        cursor = _CURSOR.search(body)
        if cursor is None:
            raise BrokenError(f"a page without a cursor: {body[:500]!r}")
        has_more = b'"hasMore":true' in body
        if self.pages == self._left or (self._left is None and not has_more):
            self.stop()
        elif has_more:
            self._ask(cursor[1])
        else:
            self.begin()

    def _ask(self, since: bytes) -> None:
        self.transport.write(pull(self._name, since, PAGE))


class Watch:
    """Time, the server's processor time and its commits since it was made."""

    def __init__(self, server: RunningServer) -> None:
        self._server = server
        self._commits = committed(server.url)[1]
        self._used, self._began = processor_us(server.pid), time.perf_counter()

    def rate(self, deltas: int, pushes: int | None = None) -> Rate:
        """What was measured, of so many deltas."""
        elapsed, used = time.perf_counter() - self._began, processor_us(self._server.pid) - self._used
        commits = committed(self._server.url)[1] - self._commits
        return Rate(deltas / elapsed, used / deltas, pushes / commits if pushes and commits else None, deltas)


async def measure_pushes(server: RunningServer, stored_deltas: int, shape: Shape, scale: float) -> Rate:
    """One shape once, with clients that have never pulled."""
    timed = max(1, round(PUSHES[shape.batch] * scale))
    warming = max(1, round(timed * WARMING))
    authors = [Author(b"writer-%d" % number) for number in range(CLIENTS)]
    prepared = [shape.requests(author, stored_deltas, warming + timed) for author in authors]
    pushers = await run(server.port, lambda _: Pusher(), CLIENTS)
    await _push_all(pushers, [requests[:warming] for requests in prepared])
    watch = Watch(server)
    await _push_all(pushers, [requests[warming:] for requests in prepared])
    rate = watch.rate(CLIENTS * timed * shape.batch, CLIENTS * timed)
    for pusher in pushers:
        pusher.transport.close()
    return rate


async def _push_all(pushers: Sequence[Pusher], shares: Sequence[Sequence[Request]]) -> None:
    work = zip(pushers, shares, strict=True)
    await asyncio.gather(*(pusher.work_off(iter(requests)) for pusher, requests in work))


async def measure_pulls(server: RunningServer, pages: int | None) -> Rate:
    """So many pages, or all there are, on one connection."""
    watch = Watch(server)
    [puller] = await run(server.port, lambda _: Puller(pages), 1)
    await puller.over
    return watch.rate(puller.entries)
