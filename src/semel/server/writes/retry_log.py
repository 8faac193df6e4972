"""Retries that are answered from a receipt: noted where they are answered, counted and stored about once a second.

Noting one appends a tuple to a bounded queue. A task folds the queue into counts by write, in short slices, and stores
a limited number of them a second by a soft write, so that a flood of retries costs no sync and little more than
without. What does not fit is dropped and counted. A crash loses about the last second, and a flood some more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice

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
STORED_AT_ONCE = 256
"""Writes whose counts one soft write stores; there is one a second."""

RetryPlace = tuple[str, bytes]
"""The surface of a write, and the key of its retries."""


NotedRetry = tuple[str, bytes, float, str, str]
"""Surface, key, time in seconds since 1970, principal and address."""


class _Tally:
    """The retries of one write that are not stored yet."""

    __slots__ = ("last", "since", "total")

    def __init__(self, since: float) -> None:
        self.total = 0
        self.since = since
        self.last: deque[NotedRetry] = deque(maxlen=KEPT_RETRIES)

    def counted(self, place: RetryPlace) -> CountedRetries:
        """The same as a value."""
        last = [SeenRetry(int(at * 1_000), principal, address) for _, _, at, principal, address in self.last]
        return CountedRetries(*place, self.total, int(self.since * 1_000), last)


class RetryLog:
    """The retries of one namespace. Used on the event loop only."""

    def __init__(self, engine: Engine, clock: Callable[[], float]) -> None:
        """`clock` tells the seconds since 1970."""
        self.contract = RetryContract()
        self._engine = engine
        self._clock = clock
        self._waiting: deque[NotedRetry] = deque()
        self._unsaved: dict[RetryPlace, _Tally] = {}
        self._storing: Mapping[RetryPlace, CountedRetries] = {}
        self.noted = 0
        """Retries that were counted."""
        self.dropped = 0
        """Retries that were not, because too many waited."""

    def note(self, surface: str, key: bytes, principal: str, address: str) -> None:
        """A retry was answered from its receipt."""
        waiting = self._waiting
        if len(waiting) < MAX_WAITING:
            waiting.append((surface, key, self._clock(), principal, address))
        else:
            self.dropped += 1

    def unsaved(self, place: RetryPlace) -> CountedRetries | None:
        """The retries of a write that are counted and not stored yet; None if there are none."""
        while self._waiting and len(self._waiting) <= FOLDED_AT_ONCE:
            self._fold()
        tally, storing = self._unsaved.get(place), self._storing.get(place)
        counted = None if tally is None else tally.counted(place)
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
        take, unsaved = self._waiting.popleft, self._unsaved
        count, dropped = min(FOLDED_AT_ONCE, len(self._waiting)), 0
        for _ in range(count):
            noted = take()
            place = noted[:2]
            tally = unsaved.get(place)
            if tally is None:
                if len(unsaved) >= MAX_UNSAVED:
                    dropped += 1
                    continue
                tally = unsaved[place] = _Tally(noted[2])
            tally.total += 1
            tally.last.append(noted)
        self.noted += count - dropped
        self.dropped += dropped

    async def _store(self) -> bool:
        """Store some of the counts; False if that failed, and then they wait for the next time."""
        places = list(islice(self._unsaved, STORED_AT_ONCE))
        self._storing = {place: self._unsaved.pop(place).counted(place) for place in places}
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
        for one in retries:
            place, since = (one.surface, one.key), one.since / 1_000
            tally = self._unsaved.setdefault(place, _Tally(since))
            tally.total += one.total
            tally.since = min(tally.since, since)
            room = KEPT_RETRIES - len(tally.last)
            earlier = (
                [(*place, seen.at / 1_000, seen.principal, seen.address) for seen in one.last[-room:]] if room else []
            )
            tally.last.extendleft(reversed(earlier))
