"""HTTP/1.1 input in small pieces for uvicorn's parser, so that one request cannot block the event loop.

One read of a socket can hold 40,000 chunks of one byte each, or thousands of small requests, and the parser calls back
for each of them: 100 ms of the loop. So what may be dense is parsed in slices, with a turn for others between two of
them. Meanwhile the socket is not read. The content of a body of known length is one callback whatever its size, and
does not wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

SLICE_BYTES = 16 * 1024
BODY_SLICE_BYTES = 64 * 1024
"""Slice of a body of known length: many small requests may follow it."""


class ReadingFlow(FlowControl):
    """Flow control of a socket: it is not read while the application is behind or input waits to be parsed."""

    def __init__(self, transport: asyncio.Transport, on_resume: Callable[[], None]) -> None:
        super().__init__(transport)
        self._on_resume = on_resume
        self._is_held = False
        self._is_reading = True

    def pause_reading(self) -> None:
        """The application is behind."""
        self.read_paused = True
        self._apply()

    def resume_reading(self) -> None:
        """It is not, any more."""
        if self.read_paused:
            self.read_paused = False
            self._on_resume()
            self._apply()

    def hold(self, is_held: bool) -> None:
        """Whether something is still to be parsed."""
        self._is_held = is_held
        self._apply()

    def _apply(self) -> None:
        wanted = not (self.read_paused or self._is_held)
        if wanted != self._is_reading and not self._transport.is_closing():
            self._is_reading = wanted
            (self._transport.resume_reading if wanted else self._transport.pause_reading)()


class PacedProtocol(HttpToolsProtocol):
    """One connection, whose bytes are parsed in slices."""

    flow: ReadingFlow

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin with nothing to parse."""
        super().connection_made(transport)
        self.flow = ReadingFlow(transport, self._go_on_soon)
        self._unparsed = b""
        self._goes_on = False
        self._has_left = False

    @property
    def is_dense(self) -> bool:
        """Whether the parser may call back often for the next input."""
        raise NotImplementedError

    def parse(self, data: bytes) -> None:
        """Have some bytes parsed."""
        super().data_received(data)

    def handle_websocket_upgrade(self) -> None:
        """Another protocol has the connection from now on."""
        self._has_left = True
        super().handle_websocket_upgrade()

    def data_received(self, data: bytes) -> None:
        """Parse it, now or in its turn."""
        if self._unparsed:
            self._unparsed += data
            return
        self._unparsed = data
        self._parse_some()

    def _parse_some(self) -> None:
        while self._unparsed:
            size = SLICE_BYTES if self.is_dense else BODY_SLICE_BYTES
            data, self._unparsed = self._unparsed[:size], self._unparsed[size:]
            self.parse(data)
            if self.transport.is_closing() or self._has_left:
                self._unparsed = b""
            elif self._unparsed and (self.is_dense or self.flow.read_paused):
                self.flow.hold(True)
                self._go_on_soon()
                return
        self.flow.hold(False)

    def _go_on_soon(self) -> None:
        if self._unparsed and not self._goes_on:
            self._goes_on = True
            self.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._goes_on = False
        if not self.flow.read_paused:  # else it goes on when the application has caught up
            self._parse_some()
