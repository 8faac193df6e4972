"""The channel between the writer and one front: messages in order, sent in batches, one batch in each pass of the loop.

A batch is 4 bytes of length and a list of tuples in the format of `marshal`, which holds only plain values and is the
fastest that Python has. It is not safe for input of others: both ends are the same program and interpreter, and the
channel is a pair of sockets that no other process can open. A channel that breaks loses the messages that the other end
has not read; for the writer every connection of that front is then lost, and for a front the writer is.
"""

from __future__ import annotations

import asyncio
import marshal
from collections.abc import Callable
from typing import Any

HIGH_BYTES = 8 * 1024 * 1024
"""Unsent bytes from which on a channel is full."""
FORMAT = 2
"""The version of `marshal` without references to earlier objects, which would cost more than they save."""
HEAD_BYTES = 4

# From a front to the writer. The first member of a message is its kind, the second the number of the connection.
READY = 0
"""The front is prepared, and waits for `BEGIN`."""
OPEN = 1
"""A connection was accepted: remote address, local address, scheme, file descriptor."""
REQUEST = 2
"""A request with its head: flags, method, path, query, headers, version, announced length, body."""
BODY = 3
"""A piece of a body after `PULL`, empty after the last one; or bytes of a tunnel."""
LOST = 4
"""The request that is being answered will never be complete."""
GONE = 5
"""The connection has ended."""
ACK = 6
"""The client keeps up: this number of bytes was passed on."""
TUNNEL = 7
"""The connection is passed on as bytes from here on: the bytes so far."""
PLAIN = 8
"""A plain request: the number of its grant, and its values."""
REFUSED = 9
"""The front itself refused input, with this status."""
PONG = 10
LAST = 11
"""The front closes the connection after the present answer."""

# From the writer to a front.
HELLO = 0
"""The settings of the front."""
ACCEPT = 1
REFUSE = 2
"""A limit of connections is reached: the message for the client."""
ANSWER = 3
"""The answer, or the rest of it: whether the connection is kept alive, and bytes."""
DATA = 4
"""Bytes of an answer that goes on, or of a tunnel."""
CLOSE = 5
ABORT = 6
PULL = 7
"""Send the next piece of the body."""
BOUND = 8
"""Limit the unsent bytes in the system's buffer."""
GRANT = 9
"""Requests like the present one may be sent as plain: number, surface, length of the body, facts."""
SETTLED = 10
"""The outcome of a plain request, for the front to render."""
AGAIN = 11
"""Send a plain request as a whole one."""
FORGET = 12
"""Drop all grants; with True, read the files of the settings again."""
TAKEN = 13
"""This number of bytes of a tunnel was taken."""
PING = 14
STOP = 15
"""End in order within this number of seconds."""
BEGIN = 16
"""Accept connections."""
END = 17
"""Nothing more is sent on a tunnel; its input is still read."""

# Flags of a request.
KEEP_ALIVE, WHOLE, CONTINUE, LEARN, LAST_ONE = 1, 2, 4, 8, 16

Message = tuple[Any, ...]


class Channel(asyncio.Protocol):
    """One end of a channel. Used on the event loop only."""

    def __init__(self, receive: Callable[[list[Message]], None], lost: Callable[[], None]) -> None:
        """`receive` gets the messages of each batch, `lost` is called once when the other end has gone."""
        self._receive = receive
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._unread = bytearray()
        self._unsent: list[Message] = []
        self.before_flush: list[Callable[[], None]] = []
        """Called, once each, before the next batch is sent; they may add messages."""
        self.is_full = False
        """Whether more than `HIGH_BYTES` are unsent: the other end does not keep up."""
        self.on_full: Callable[[bool], None] | None = None
        """Called when `is_full` changes."""

    def send(self, message: Message) -> None:
        """Send a message with the next batch."""
        if not self._unsent:
            self._loop.call_soon(self.flush)
        self._unsent.append(message)

    def flush_soon(self, callback: Callable[[], None]) -> None:
        """Call a function before the next batch is sent."""
        if not self._unsent and not self.before_flush:
            self._loop.call_soon(self.flush)
        self.before_flush.append(callback)

    def flush(self) -> None:
        """Send what waits now."""
        while self.before_flush:
            callbacks, self.before_flush = self.before_flush, []
            for callback in callbacks:
                callback()
        batch, self._unsent = self._unsent, []
        if batch and self._transport is not None and not self._transport.is_closing():
            data = marshal.dumps(batch, FORMAT)
            self._transport.write(len(data).to_bytes(HEAD_BYTES, "big") + data)

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the other end has not read, besides what the system holds."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def pause_reading(self, is_paused: bool) -> None:
        """Read nothing from the other end, or read again."""
        if self._transport is not None and not self._transport.is_closing():
            (self._transport.pause_reading if is_paused else self._transport.resume_reading)()

    def close(self) -> None:
        """Send what waits, and end."""
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """End at once."""
        if self._transport is not None:
            self._transport.abort()

    # ---- Called by the transport ----

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The channel is open."""
        self._transport = transport
        transport.set_write_buffer_limits(high=HIGH_BYTES)

    def connection_lost(self, exc: Exception | None) -> None:
        """The other end has gone."""
        self._lost()

    def pause_writing(self) -> None:
        """The other end does not keep up."""
        self._fill(True)

    def resume_writing(self) -> None:
        """The other end keeps up again."""
        self._fill(False)

    def _fill(self, is_full: bool) -> None:
        self.is_full = is_full
        if self.on_full is not None:
            self.on_full(is_full)

    def data_received(self, data: bytes) -> None:
        """Bytes of the other end: pass on the batches that are whole."""
        if self._unread:
            self._unread += data
            data = bytes(self._unread) if self._is_whole(self._unread) else b""
            if not data:
                return
            self._unread.clear()
        at, end = 0, len(data)
        view = memoryview(data)
        while end - at >= HEAD_BYTES:
            size = int.from_bytes(view[at : at + HEAD_BYTES], "big")
            if end - at - HEAD_BYTES < size:
                break
            at += HEAD_BYTES
            batch: list[Message] = marshal.loads(view[at : at + size])  # noqa: S302 - both ends are this program
            at += size
            self._receive(batch)
        if at < end:
            self._unread += view[at:]

    @staticmethod
    def _is_whole(unread: bytearray) -> bool:
        """Whether the first batch has arrived."""
        return len(unread) >= HEAD_BYTES and len(unread) - HEAD_BYTES >= int.from_bytes(unread[:HEAD_BYTES], "big")
