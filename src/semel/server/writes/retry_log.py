"""Retries that are answered from a receipt: noted where they are answered, counted and stored about once a second.

Noting one appends a tuple to a bounded queue. A task folds the queue into counts by write, in short slices, and stores
a limited number of them a second by a soft write, so that a flood of retries costs no sync and little more than
without. What does not fit is dropped and counted. A crash loses about the last second, and a flood some more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from time import monotonic

from semel.engine.contract import EngineError, OutcomeUnknownError, Write
from semel.engine.engine import Engine
from semel.server.writes.find_wire import SeenRetry
from semel.server.writes.retry_table import KEPT_RETRIES, AddRetries, CountedRetries, RetryContract, joined

FOLD_SECONDS = 1.0
MAX_WAITING = 65_536
"""Noted retries that wait to be counted."""
MAX_UNSAVED = 50_000
"""Writes whose counts wait to be stored."""
FOLDED_AT_ONCE = 1_000
"""Retries that are counted before the event loop goes on: about a millisecond."""
MAX_LAST = 4 * KEPT_RETRIES
"""Retries of one write that are held before all but the last are forgotten."""
STORED_AT_ONCE = 256
"""Writes whose counts one soft write stores; there is one a second."""

STEP_MS = 20.0
"""A difference of the two clocks by which the wall clock was set."""

RetryPlace = tuple[str, bytes]
"""The surface of a write, and the key of its retries."""


NotedRetry = tuple[str, bytes, float, str, str]
"""Surface, key, time in seconds of the monotonic clock, principal and address."""


class _Tally:
    """The retries of one write that are not stored yet."""

    __slots__ = ("last", "since", "total")

    def __init__(self, since: float) -> None:
        self.total = 0
        self.since = since
        self.last: list[NotedRetry] = []
        """At least the last ones; cut now and then, because a list is cheaper to make than a bounded queue."""


class RetryLog:
    """The retries of one namespace. Used on the event loop only."""

    def __init__(self, engine: Engine, wall_ms: Callable[[], int]) -> None:
        self.contract = RetryContract()
        self._engine = engine
        self._wall_ms = wall_ms
        self._offset_ms = wall_ms() - monotonic() * 1_000
        self._waiting: list[NotedRetry] = []
        self._unsaved: dict[RetryPlace, _Tally] = {}
        self._storing: Mapping[RetryPlace, CountedRetries] = {}
        self.noted = 0
        """Retries that were counted."""
        self.dropped = 0
        """Retries that were not, because too many waited."""

    def note(self, surface: str, key: bytes, at: float, principal: str, address: str) -> None:
        """A retry was answered from its receipt; `at` is its time in seconds of the monotonic clock."""
        waiting = self._waiting
        if len(waiting) < MAX_WAITING:
            waiting.append((surface, key, at, principal, address))
        else:
            self.dropped += 1

    def unsaved(self, place: RetryPlace) -> CountedRetries | None:
        """The retries of a write that are counted and not stored yet; None if there are none."""
        while self._waiting and len(self._waiting) <= FOLDED_AT_ONCE:
            self._fold()
        tally, storing = self._unsaved.get(place), self._storing.get(place)
        counted = None if tally is None else self._counted(place, tally)
        if storing is None or counted is None:
            return counted or storing
        return joined(storing, counted)

    async def run(self) -> None:
        """Count and store about once a second, until cancelled."""
        while True:
            await asyncio.sleep(FOLD_SECONDS)
            await self._fold_all()
            if self._unsaved:
                await self._store()

    async def finish(self) -> None:
        """Store everything, before the engine stops."""
        await self._fold_all()
        while self._unsaved and await self._store():
            continue

    async def _fold_all(self) -> None:
        while self._waiting:
            self._fold()
            await asyncio.sleep(0)

    def _fold(self) -> None:
        """Count some of the noted retries."""
        unsaved, dropped = self._unsaved, 0
        some = self._waiting[:FOLDED_AT_ONCE]
        del self._waiting[:FOLDED_AT_ONCE]
        for noted in some:
            place = noted[:2]
            tally = unsaved.get(place)
            if tally is None:
                if len(unsaved) >= MAX_UNSAVED:
                    dropped += 1
                    continue
                tally = unsaved[place] = _Tally(noted[2])
            tally.total += 1
            last = tally.last
            last.append(noted)
            if len(last) > MAX_LAST:
                del last[:-KEPT_RETRIES]
        self.noted += len(some) - dropped
        self.dropped += dropped

    def _counted(self, place: RetryPlace, tally: _Tally) -> CountedRetries:
        """The retries of a write, with their times since 1970."""
        ahead = self._ahead()
        last = [SeenRetry(round(at * 1_000 + ahead), who, address) for _, _, at, who, address in tally.last]
        return CountedRetries(*place, tally.total, round(tally.since * 1_000 + ahead), last[-KEPT_RETRIES:])

    def _ahead(self) -> float:
        """What is added to milliseconds of the monotonic clock; the same until the wall clock is set, so that a time is
        told in the same way each time.
        """
        now = self._wall_ms() - monotonic() * 1_000
        if abs(now - self._offset_ms) > STEP_MS:
            self._offset_ms = now
        return self._offset_ms

    async def _store(self) -> bool:
        """Store some of the counts; False if that failed, and then they wait for the next time."""
        places = list(islice(self._unsaved, STORED_AT_ONCE))
        self._storing = {place: self._counted(place, self._unsaved.pop(place)) for place in places}
        retries = tuple(self._storing.values())
        try:
            write = Write(self.contract, AddRetries(retries), cost=len(retries), is_soft=True)
            await self._engine.submit(write)
        except OutcomeUnknownError:
            return False  # counted twice would be worse than lost
        except EngineError:
            self._put_back(retries)
            return False
        else:
            return True
        finally:
            self._storing = {}

    def _put_back(self, retries: Sequence[CountedRetries]) -> None:
        """Keep what was not stored."""
        ahead = self._ahead()
        for one in retries:
            place, since = (one.surface, one.key), (one.since - ahead) / 1_000
            tally = self._unsaved.setdefault(place, _Tally(since))
            tally.total += one.total
            tally.since = min(tally.since, since)
            tally.last[:0] = [(*place, (seen.at - ahead) / 1_000, seen.principal, seen.address) for seen in one.last]
