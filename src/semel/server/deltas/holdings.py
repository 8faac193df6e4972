"""The memory budget of one WebSocket: frames that arrive or wait, and answers that are unsent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from semel.server.deltas.access import Asked
from semel.server.deltas.desk import Desk

SETTLE_SECONDS = 1.0
"""Seconds between two checks of how much of an answer the client has read."""


class Holdings:
    """The bytes that one connection holds; used on the event loop only."""

    def __init__(self, desk: Desk, asked: Asked, unsent: Callable[[], int]) -> None:
        """`unsent` returns the number of unsent bytes."""
        self._input = desk.uploads.share(asked.counted_as)
        self.output = desk.answers.share(asked.counted_as)
        """For what is about to leave."""
        self.waiting = 0
        """Bytes of whole frames."""
        self._arriving = 0
        self._begun_at: float | None = None
        self._unsent = unsent
        self.longest_seconds = desk.context.settings.http_body_ms / 1_000
        """Time limit in seconds for a frame to arrive."""
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    # What comes in.

    def arriving(self, size: int) -> None:
        """Note how many bytes of an incomplete frame have arrived."""
        self._arriving = size
        if not size:
            self._begun_at = None
        elif self._begun_at is None:
            self._begun_at = self._loop.time()

    def arrived(self, size: int) -> None:
        """A frame is whole."""
        self.arriving(0)
        self.waiting += size

    def answered(self, size: int) -> None:
        """A frame has had its turn."""
        self.waiting -= size

    def has_room(self) -> bool:
        """Whether the budget has room for all that has arrived."""
        return self._input.resize(self.waiting + self._arriving)

    def is_late(self) -> bool:
        """Whether a frame takes too long to arrive."""
        return self._begun_at is not None and self._loop.time() - self._begun_at >= self.longest_seconds

    # What goes out.

    def settle(self) -> None:
        """The answer is with the transport: from now on only the bytes that wait there are held."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self.output.resize(min(self._unsent(), self.output.size))
        if self.output.size:
            self._timer = self._loop.call_later(SETTLE_SECONDS, self.settle)

    def close(self) -> None:
        """The connection is gone, and everything that waited with it."""
        if self._timer is not None:
            self._timer.cancel()
        self._input.close()
        self.output.close()
