"""The transport of a connection whose socket is held by a front: what is written here travels through the channel.

The front tells how many bytes it could pass on, so the limits of unsent bytes and the time limits of slow clients hold
as for a socket. A crash of the front ends the transport as the loss of a connection does.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from semel.server.fronts.channel import ABORT, ANSWER, CLOSE, DATA, END, TAKEN, Channel

HIGH_BYTES = 64 * 1024
LOW_BYTES = 16 * 1024


class RelayedProtocol(Protocol):
    """What uses such a transport: a relayed connection, or the protocol at the end of a tunnel."""

    def data_received(self, data: bytes) -> None:
        """Bytes from the client."""

    def pause_writing(self) -> None:
        """The client does not keep up."""

    def resume_writing(self) -> None:
        """The client keeps up again."""


class RelayTransport(asyncio.Transport):
    """The writer's end of one connection of a front. Used on the event loop only."""

    def __init__(self, channel: Channel, number: int, client: tuple[str, int] | None, server: Any, scheme: str) -> None:
        super().__init__({"peername": client, "sockname": server})
        self._channel = channel
        self._number = number
        self._is_secure = scheme == "https"
        self._protocol: Any = None
        self._parts: list[bytes] = []
        self._size = 0
        """Bytes of `_parts`, which were not sent to the front."""
        self._unacked = 0
        """Bytes that the front has not passed on."""
        self._high, self._low = HIGH_BYTES, LOW_BYTES
        self._is_paused = False
        self._is_closing = False
        self._is_reading = True
        self._held: list[bytes] = []
        """Bytes of a tunnel that arrived while reading was paused; the front bounds them."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Addresses, and whether the front uses TLS. There is no socket."""
        if name == "sslcontext":
            return True if self._is_secure else default
        return super().get_extra_info(name, default)

    def set_protocol(self, protocol: Any) -> None:
        """Pass input and changes of flow to another object."""
        self._protocol = protocol

    def get_protocol(self) -> Any:
        """The object that gets the input."""
        return self._protocol

    # ---- Output ----

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes to the client."""
        if self._is_closing or not data:
            return
        if not self._parts:
            self._channel.flush_soon(self._flush)
        self._parts.append(bytes(data))
        self._size += len(data)
        if not self._is_paused and self._size + self._unacked > self._high:
            self._is_paused = True
            self._protocol.pause_writing()

    def _flush(self) -> None:
        """Send what is written of an answer that goes on."""
        if self._parts:
            self._unacked += self._size
            self._channel.send((DATA, self._number, *self._take_parts()))

    def _take_parts(self) -> list[bytes]:
        parts, self._parts, self._size = self._parts, [], 0
        return parts

    def end_answer(self, keep_alive: bool) -> None:
        """Send what is left of an answer. The front holds the next request until the client has read this one."""
        self._channel.send((ANSWER, self._number, keep_alive, *self._take_parts()))
        self._unacked = 0
        self._relax()

    def acked(self, size: int) -> None:
        """The front has passed on bytes."""
        self._unacked = max(0, self._unacked - size)
        self._relax()

    def _relax(self) -> None:
        if self._is_paused and self._size + self._unacked <= self._low:
            self._is_paused = False
            self._protocol.resume_writing()

    def get_write_buffer_size(self) -> int:
        """Bytes that the front has not passed on."""
        return self._size + self._unacked

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """The limits in bytes, the lower first."""
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the bytes from which on the protocol is told to wait, and below which it goes on."""
        self._high = HIGH_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    # ---- Input of a tunnel ----

    def receive(self, data: bytes) -> None:
        """Bytes of a tunnel."""
        if self._is_reading and not self._is_closing:
            self._channel.send((TAKEN, self._number, len(data)))
            self._protocol.data_received(data)
        else:
            self._held.append(data)

    def is_reading(self) -> bool:
        """Whether input is passed on."""
        return self._is_reading

    def pause_reading(self) -> None:
        """Hold input; the front stops reading when its share is held."""
        self._is_reading = False

    def resume_reading(self) -> None:
        """Pass input on again, in the next pass of the loop."""
        if not self._is_reading:
            self._is_reading = True
            asyncio.get_running_loop().call_soon(self._pass_on)

    def _pass_on(self) -> None:
        while self._held and self._is_reading and not self._is_closing:
            self.receive(self._held.pop(0))

    # ---- Ends ----

    def can_write_eof(self) -> bool:
        """Whether the output can end before the input: not with TLS."""
        return not self._is_secure

    def write_eof(self) -> None:
        """End the output after what was written."""
        self._flush()
        self._channel.send((END, self._number))

    def is_closing(self) -> bool:
        """Whether the connection is ending."""
        return self._is_closing

    def close(self) -> None:
        """Close the connection after what was written."""
        if not self._is_closing:
            self._flush()
            self._is_closing = True
            self._channel.send((CLOSE, self._number))

    def abort(self) -> None:
        """Close the connection at once."""
        self._take_parts()
        self._is_closing = True
        self._channel.send((ABORT, self._number))

    def lost(self) -> None:
        """The connection has ended."""
        self._is_closing = True
        self._take_parts()
        self._held.clear()
