"""The share of one connection in the memory budget of all connections: received frames and unsent answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from semel.surfaces.deltas.access import DeltaCaller
from semel.surfaces.deltas.service import DeltaService

SETTLE_SECONDS = 1.0
"""Seconds between two checks of how much of an answer the client has read."""


class ConnectionMemory:
    """The bytes that one connection holds; used on the event loop only."""

    def __init__(self, service: DeltaService, asked: DeltaCaller, unsent: Callable[[], int]) -> None:
        """`unsent` returns the number of unsent bytes."""
        self._input = service.uploads.share(asked.counted_as)
        self.output = service.answers.share(asked.counted_as)
        """The budget share of the answer that is sent next."""
        self.waiting = 0
        """Bytes of complete frames that wait for an answer."""
        self._arriving = 0
        self._begun_at: float | None = None
        self._unsent = unsent
        self.longest_seconds = service.context.settings.http_body_ms / 1_000
        """Time limit in seconds for a frame to arrive."""
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    # Input.

    def arriving(self, size: int) -> None:
        """Note how many bytes of an incomplete frame have arrived."""
        self._arriving = size
        if not size:
            self._begun_at = None
        elif self._begun_at is None:
            self._begun_at = self._loop.time()

    def arrived(self, size: int) -> None:
        """A frame has arrived completely."""
        self.arriving(0)
        self.waiting += size

    def answered(self, size: int) -> None:
        """A frame was answered."""
        self.waiting -= size

    def has_room(self) -> bool:
        """Whether the budget has room for all received bytes."""
        return self._input.resize(self.waiting + self._arriving)

    def is_late(self) -> bool:
        """Whether a frame takes too long to arrive."""
        return self._begun_at is not None and self._loop.time() - self._begun_at >= self.longest_seconds

    # Output.

    def settle(self) -> None:
        """Hold only the bytes that wait in the transport; the answer has been passed to it."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self.output.resize(min(self._unsent(), self.output.size))
        if self.output.size:
            self._timer = self._loop.call_later(SETTLE_SECONDS, self.settle)

    def close(self) -> None:
        """Release all memory; the connection is closed."""
        if self._timer is not None:
            self._timer.cancel()
        self._input.close()
        self.output.close()
