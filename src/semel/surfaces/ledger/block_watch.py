"""A watch of the blocks of a place for one client: the existing blocks, then each new one, in order.

A watch is a follower of the log (`engine/follow.py`) with headers of blocks as its pages, so nothing is queued for a
client that does not read. A client that was up to date and then falls too many blocks behind is disconnected; it
continues from its last height.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, NamedTuple, Self

from semel.engine.caller import WaitingCaller
from semel.engine.follow import EndCause, FollowedPage, LogFollower
from semel.engine.reading import Reading
from semel.kernel.errors import Refused
from semel.server.auth.principals import Principal
from semel.server.context import Context
from semel.surfaces.ledger.access import LedgerAuditTrail
from semel.surfaces.ledger.commands import invalid
from semel.surfaces.ledger.limits import WATCH_BEHIND
from semel.surfaces.ledger.model import BlockHeader, LedgerPlace
from semel.surfaces.ledger.reading import headers, tip
from semel.surfaces.ledger.rules.write import topic_of

PAGE_HEADERS = 256
LOOK_AGAIN_SECONDS = 1.0
SLOW_SECONDS = 1.0
"""Seconds after which a client that has not taken its page counts as too slow."""


class _HeaderPage(NamedTuple):
    headers: list[BlockHeader]
    tip: int


class BlockWatch(LogFollower):
    """A subscription to blocks. A context manager; use it on the event loop."""

    def __init__(
        self,
        context: Context,
        audit_trail: LedgerAuditTrail,
        place: LedgerPlace,
        start: int,
        principal: Principal,
        caller: WaitingCaller,
    ) -> None:
        if start < 1:
            raise invalid("A watch begins at a height, and at least at 1.", "startHeight")
        super().__init__(context.engine.signals, topic_of(place), context.end_of(caller, principal))
        self._engine = context.engine
        self._audit_trail = audit_trail
        self._place = place
        self._above = self._taken = start - 1
        self._was_up_to_date = self._is_slow = False
        self._given_at: float | None = None

    def __enter__(self) -> Self:
        self._audit_trail.watchers += 1
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._audit_trail.watchers -= 1
        super().__exit__(kind, error, trace)

    @property
    def is_over(self) -> bool:
        """Whether the client has disconnected; any other end is raised by `next`."""
        return self.end.is_gone()

    async def next(self, seconds: float) -> list[BlockHeader]:
        """The next page of blocks; empty if the time is up or the client has disconnected."""
        loop = asyncio.get_running_loop()
        self._taken = self._above
        self._is_slow = self._given_at is not None and loop.time() - self._given_at >= SLOW_SECONDS
        found = await self.follow(self._look, seconds)
        if not found:
            self._refuse_end()
        self._given_at = loop.time() if found else None
        return found

    async def _look(self) -> FollowedPage[list[BlockHeader]]:
        if self.is_over:
            return FollowedPage([], True)
        self._refuse_end()
        page = await self._engine.read(self._read)
        if self._is_slow:
            self._refuse_slow(page.tip)
        if page.headers:
            self._above = page.headers[-1].height
        self._was_up_to_date = self._was_up_to_date or self._above >= page.tip
        return FollowedPage(page.headers, bool(page.headers), LOOK_AGAIN_SECONDS)

    async def deliver(self, sending: Coroutine[Any, Any, None]) -> None:
        """Wait for the client to take the page of `next`. Raise if the watch ends; then the page is not counted."""
        task = asyncio.ensure_future(sending)
        reached = self._above
        try:
            while not (await asyncio.wait({task}, timeout=SLOW_SECONDS))[0]:
                self._above = self._taken  # the client continues here if it does not take this page
                self._refuse_end()
                self._refuse_slow(await self._engine.read(lambda reading: tip(reading, self._place).height))
        finally:
            task.cancel()
        await task
        self._above = reached

    def _read(self, reading: Reading) -> _HeaderPage:
        height = tip(reading, self._place).height
        upto = min(height, self._above + PAGE_HEADERS)
        return _HeaderPage(headers(reading, self._place, self._above, upto) if upto > self._above else [], height)

    def _refuse_end(self) -> None:
        cause = self.end.cause
        if cause is EndCause.STOP:
            raise Refused("ledger:unavailable", f"The server is stopping; go on at height {self._above + 1}.")
        if cause is EndCause.CREDENTIAL:
            raise Refused("ledger:unauthenticated", "The credential that this began with has expired.")

    def _refuse_slow(self, height: int) -> None:
        if not self._was_up_to_date or height - self._above <= WATCH_BEHIND:
            return
        self._audit_trail.cut_off()
        message = f"The client is more than {WATCH_BEHIND} blocks behind; go on at height {self._above + 1}."
        raise Refused("ledger:unavailable", message, {"height": str(self._above + 1)})
