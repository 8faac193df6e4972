"""Live reads of a stream for one client: long poll and server-sent events (SSE).

A live reader listens before it looks: it arms its watch, reads the log from its cursor, and waits only when there was
nothing. So no commit can fall between the look and the wait. It holds one page at most, and reads the next only when
the client has taken the last.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

from semel.contracts.streams.reading import Page
from semel.kernel.retention import NEVER
from semel.server.context import Context
from semel.server.http.request import Request
from semel.server.streams.shared_looks import SharedLooks


class StreamEndedError(Exception):
    """The stream was deleted or has expired."""


class LiveReader:
    """A live reader; it begins behind the last page of the client."""

    def __init__(self, context: Context, looks: SharedLooks, name: bytes, given: Page, request: Request) -> None:
        self._context = context
        self._looks = looks
        self._name = name
        self._life = given.stream.id
        self._position = given.end
        self._request = request
        self._watch = context.engine.signals.watch(self._life)
        self._revocation = request.revocation

    def __enter__(self) -> LiveReader:
        self._request.on_gone = self._watch.wake
        if self._revocation is not None:
            self._revocation.watch(self._watch.wake)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watch.close()
        if self._revocation is not None:
            self._revocation.unwatch(self._watch.wake)

    @property
    def is_over(self) -> bool:
        """Whether the client has disconnected, its token was revoked, or the server is stopping."""
        is_revoked = self._revocation is not None and self._revocation.has_come
        return self._context.is_stopping or is_revoked or self._request.gone

    async def next(self, seconds: float) -> Page:
        """The next page with content or closure; an empty one when the time is up or it is over."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while True:
            self._watch.arm()
            page = await self._looks.page(self._name, self._position)
            if page is None or page.stream.id != self._life:
                raise StreamEndedError
            self._position = page.end
            left = end - loop.time()
            if page.pieces or page.is_final or self.is_over or left <= 0:
                return page
            await self._watch.wait(min(left, self._until_end_of_life(page)))

    def _until_end_of_life(self, page: Page) -> float:
        """Seconds until the stream may have ended: no signal is sent at that time."""
        deadline = page.stream.deadline
        if deadline == NEVER:
            return float("inf")
        left = (deadline - self._context.world.wall_ms()) / 1_000
        return max(0.01, left) if left > 0 else 0.5  # past it, and yet alive: expiry waits for a clock that jumped
