"""Back pressure of one connection, and turns among connections that are expensive to parse."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class Flow:
    """Reads the socket unless the application is behind, or bytes that were read are not parsed yet."""

    __slots__ = ("_drained", "_is_held", "_is_reading", "_transport", "read_paused", "write_paused")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._is_held = False
        self._is_reading = True
        self._drained: asyncio.Future[None] | None = None
        self.read_paused = False
        """Whether the application is behind."""
        self.write_paused = False
        """Whether the client does not keep up."""

    def pause_reading(self) -> None:
        """The application is behind."""
        self.read_paused = True
        self._apply()

    def resume_reading(self) -> None:
        """The application has caught up."""
        self.read_paused = False
        self._apply()

    def hold(self, is_held: bool) -> None:
        """Whether bytes are still to be parsed."""
        self._is_held = is_held
        self._apply()

    def _apply(self) -> None:
        wanted = not (self.read_paused or self._is_held)
        if wanted != self._is_reading and not self._transport.is_closing():
            self._is_reading = wanted
            (self._transport.resume_reading if wanted else self._transport.pause_reading)()

    def pause_writing(self) -> None:
        """The client does not keep up."""
        self.write_paused = True

    def resume_writing(self) -> None:
        """The client reads again or has disconnected: in both cases the writer continues."""
        self.write_paused = False
        if self._drained is not None:
            if not self._drained.done():
                self._drained.set_result(None)
            self._drained = None

    async def drain(self) -> None:
        """Wait until the client keeps up or has disconnected; one answer is written at a time, so there is one
        waiter.
        """
        while self.write_paused:
            self._drained = asyncio.get_running_loop().create_future()
            await self._drained


class Crowd:
    """Turns of connections that are expensive to parse: one connection in each pass of the event loop.

    A slice of tiny chunks takes milliseconds. A hundred connections that send only such chunks would take a hundred
    slices in each pass of the loop, and all other connections would wait for them. Here they wait for one another.
    """

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()

    def add(self, callback: Callable[[], None]) -> None:
        """Call `turn` when it is this connection's turn."""
        self._waiting.append(callback)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._take_turn)

    def _take_turn(self) -> None:
        callback = self._waiting[0]
        try:
            callback()
        finally:
            self._waiting.popleft()
            if self._waiting:
                asyncio.get_running_loop().call_soon(self._take_turn)
