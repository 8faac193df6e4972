"""A subscription to the blocks of a place for one client: existing blocks, then each new one, in order.

A watch subscribes before it reads: it arms its signal, reads headers from its cursor, and waits only when there were
none. So no commit can fall between the read and the wait, and nothing is queued for a slow client. One that was up to
date and then falls behind by many blocks is disconnected: it resumes where it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, NamedTuple

from semel.contracts.ledger.limits import WATCH_BEHIND
from semel.contracts.ledger.model import Header, Place
from semel.contracts.ledger.reading import headers, tip
from semel.contracts.ledger.refusals import RefusedLedger, invalid
from semel.contracts.ledger.rules.write import topic_of
from semel.engine.engine import Caller
from semel.engine.reading import Reading
from semel.engine.signals import Watch
from semel.server.context import Context
from semel.server.ledger.journal import Journal
from semel.server.principals import Principal

PAGE_HEADERS = 256
LOOK_AGAIN_SECONDS = 1.0
SLOW_SECONDS = 1.0
"""Seconds after which a client that has not taken its page counts as too slow."""


class _Page(NamedTuple):
    headers: list[Header]
    tip: int


class BlockWatch:
    """A subscription to blocks. A context manager; use it on the event loop."""

    def __init__(
        self, context: Context, journal: Journal, place: Place, start: int, principal: Principal, caller: Caller
    ) -> None:
        if start < 1:
            raise invalid("A watch begins at a height, and at least at 1.", "startHeight")
        self._context = context
        self._journal = journal
        self._place = place
        self._above = self._taken = start - 1
        self._principal = principal
        self._caller = caller
        self._ear: Watch | None = None
        self._was_up_to_date = False
        self._given_at: float | None = None

    def __enter__(self) -> BlockWatch:
        self._journal.watchers += 1
        self._ear = self._context.engine.signals.watch(topic_of(self._place))
        if self._principal.revocation is not None:
            self._principal.revocation.watch(self._ear.wake)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._journal.watchers -= 1
        if self._ear is not None:
            self._ear.close()
            if self._principal.revocation is not None:
                self._principal.revocation.unwatch(self._ear.wake)

    @property
    def is_over(self) -> bool:
        """Whether the client has disconnected."""
        return self._caller.gone

    async def next(self, seconds: float) -> list[Header]:
        """The next blocks, some at a time; none when the time is up or the client has disconnected."""
        assert self._ear is not None, "a watch is entered before it is asked"
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        self._taken = self._above
        is_slow = self._given_at is not None and loop.time() - self._given_at >= SLOW_SECONDS
        while not self.is_over:
            self._refuse_end()
            self._ear.arm()
            page = await self._context.engine.read(self._look)
            if is_slow:
                self._refuse_slow(page.tip)
            if page.headers:
                self._above = page.headers[-1].height
                self._was_up_to_date = self._was_up_to_date or self._above >= page.tip
                self._given_at = loop.time()
                return page.headers
            self._was_up_to_date = True
            left = end - loop.time()
            if left <= 0:
                break
            await self._ear.wait(min(left, LOOK_AGAIN_SECONDS))
        self._given_at = None
        return []

    async def deliver(self, sending: Coroutine[Any, Any, None]) -> None:
        """Wait until the client has taken what `next` gave; what ends a watch ends this, too, and then it has not."""
        task = asyncio.ensure_future(sending)
        reached = self._above
        try:
            while not (await asyncio.wait({task}, timeout=SLOW_SECONDS))[0]:
                self._above = self._taken  # which is where the client goes on if it does not take this
                self._refuse_end()
                self._refuse_slow(await self._context.engine.read(lambda reading: tip(reading, self._place).height))
        finally:
            task.cancel()
        await task
        self._above = reached

    def _look(self, reading: Reading) -> _Page:
        height = tip(reading, self._place).height
        upto = min(height, self._above + PAGE_HEADERS)
        return _Page(headers(reading, self._place, self._above, upto) if upto > self._above else [], height)

    def _refuse_end(self) -> None:
        if self._context.is_stopping:
            raise RefusedLedger("unavailable", f"The server is stopping; go on at height {self._above + 1}.")
        if self._principal.has_ended(self._context.world.wall_ms()):
            raise RefusedLedger("unauthenticated", "The credential that this began with has expired.")

    def _refuse_slow(self, height: int) -> None:
        if not self._was_up_to_date or height - self._above <= WATCH_BEHIND:
            return
        self._journal.cut_off()
        message = f"The client is more than {WATCH_BEHIND} blocks behind; go on at height {self._above + 1}."
        raise RefusedLedger("unavailable", message, {"height": str(self._above + 1)})
