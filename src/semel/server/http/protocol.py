"""One HTTP/1.1 connection: requests run one after another, answers are sent in order, and every wait has a time limit.

A plain answer is written in the callback that read its request, without a task or a future. The application is told at
once when a client has disconnected: a write of that client is dropped if it has not run yet, and a live reader ends.
"""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import TYPE_CHECKING

from semel.kernel.errors import Refusal
from semel.server.http.answer import SECURITY, header_block
from semel.server.http.answer_head import CLOSE_LINE, STATUS_LINES
from semel.server.http.application import UpgradedConnection
from semel.server.http.exchange import HttpExchange
from semel.server.http.flow import Flow
from semel.server.http.head_shapes import RunningExchange
from semel.server.http.problem import problem_body, problem_headers
from semel.server.http.reader import SLICE_BYTES
from semel.server.http.shaped_reader import ShapedRequestReader
from semel.server.quotas.accounts import leave_account

if TYPE_CHECKING:
    from semel.server.http.server import HttpHost

BODY_SLICE_BYTES = 64 * 1024
"""Slice size for a body of known length: the bytes after it may be expensive to parse."""
REQUESTS_A_TURN = 32
"""Pipelined requests that are started before other connections run."""
PLAIN_METHOD = b"POST "
"""Plain requests are writes."""
CROWD_CHUNKS = 500
"""A connection whose last slice had more chunks than this waits for its turn in the crowd."""
STALL_BYTES = 64 * 1024
"""A client that reads at least this many bytes within the stall time is slow, but not stalled."""


class HttpProtocol(ShapedRequestReader):
    """One connection."""

    __slots__ = (
        "_closing_at",
        "_goes_on",
        "_idle_at",
        "_is_counted",
        "_is_in_turn",
        "_last_words",
        "_opened_at",
        "_stalled_at",
        "_unsent",
    )

    def __init__(self, host: HttpHost, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(host, loop)
        self._opened_at = self._idle_at = self._data_at
        self._goes_on = False
        self._is_in_turn = False
        self._is_counted = False
        self._stalled_at: float | None = None
        self._closing_at: float | None = None
        self._unsent = 0
        self._last_words: Refusal | None = None

    # ---- From the transport ----

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection, or refuse it if there are too many."""
        self.transport = transport
        self.flow = Flow(transport)
        self.client, self.server = _address(transport, "peername"), _address(transport, "sockname")
        if transport.get_extra_info("sslcontext") is not None:
            self.scheme = "https"
        if not self.application.is_control(self.server):
            self._shapes = self.host.shapes
        self.host.connections.add(self)
        if self.host.is_stopping:  # the TLS handshake ended after the listener was closed
            self.is_stopping = self._is_deaf = True
            transport.close()
            return
        own = transport.get_extra_info("socket")
        descriptor = 0 if own is None else own.fileno()
        opened = len(self.host.connections)
        refusal = self.host.connection_limit.refusal(self._remote, opened, descriptor, self._opened_at)
        self._is_counted = refusal is None
        if refusal is not None:
            self.refuse(refusal)

    def connection_lost(self, exc: Exception | None) -> None:
        """End everything that works or waits for this client, not only the latest request."""
        self._leave(self)
        self._parser = None
        self._unparsed = b""
        self.flow.resume_writing()
        running, self.running = self.running, None
        lost = [*([] if running is None else [running]), *self.waiting]
        self.waiting.clear()
        self.latest = None
        for exchange in lost:
            exchange.lose()

    def data_received(self, data: bytes) -> None:
        """Parse the bytes, now or in turn; a plain request whose head is known is begun without the parser."""
        if self.known_head is not None and self._take_alone(self.known_head, data):
            return
        if data[:5] == PLAIN_METHOD and not self._unparsed:
            data = self._begin_known(data)
            if not data:
                return
        if self._unparsed:
            self._unparsed += data
        elif self._chunks > CROWD_CHUNKS:
            self._unparsed = data
            self.flow.hold(True)
            self._go_on_soon()
        elif len(data) <= SLICE_BYTES:
            self.parse(data)
            if self.waiting:
                self._take_turns()
            if self.waiting or self._is_arriving or self.flow.read_paused:
                self.listen()
        else:
            self._unparsed = data
            self._parse_some()
        self._learned_from = b""

    def pause_writing(self) -> None:
        """The client does not keep up."""
        self._stalled_at = self.loop.time()
        self._unsent = self.transport.get_write_buffer_size()
        self.flow.pause_writing()

    def resume_writing(self) -> None:
        """The client reads again."""
        self._stalled_at = None
        self.flow.resume_writing()
        if self.waiting:
            self._go_on_soon()

    # ---- Turns ----

    def _parse_some(self) -> None:
        """Parse until the bytes are expensive or enough of a body is unread; then requests can run."""
        if self._unparsed[:5] == PLAIN_METHOD and self._may_be_shaped():
            self._unparsed = self._take_shaped(self._unparsed)
        while self._unparsed:
            size = SLICE_BYTES if self.is_dense else BODY_SLICE_BYTES
            data, self._unparsed = self._unparsed[:size], self._unparsed[size:]
            self.parse(data)
            if self._is_deaf or self.transport.is_closing():
                self._unparsed = b""
            elif self.is_dense or (self.latest is not None and self.latest.is_behind):
                break
        self._take_turns()
        self.listen()
        self.flow.hold(bool(self._unparsed))
        if self._unparsed:
            self._go_on_soon()

    def _take_turns(self) -> None:
        """Start requests one after another; an answer that the client does not read delays the next one."""
        if self._is_in_turn:
            return
        self._is_in_turn = True
        try:
            left = REQUESTS_A_TURN
            while self.waiting and self.running is None:
                if self.transport.is_closing():
                    return
                if not left:
                    self._go_on_soon()
                    return
                left -= 1
                exchange = self.running = self.waiting.popleft()
                exchange.start()
        finally:
            self._is_in_turn = False

    def listen(self) -> None:
        """Read the socket unless requests are waiting that cannot be pipelined, too much of a body is unread, or a
        refusal is waiting.
        """
        latest = self.latest
        is_full = self.waiting and not self._is_pipelining
        is_behind = self._last_words is not None or is_full or (latest is not None and latest.is_behind)
        if is_behind:
            if not self.flow.read_paused:
                self.flow.pause_reading()
        elif self.flow.read_paused:
            self.flow.resume_reading()
            if self._unparsed:
                self._go_on_soon()

    def _go_on_soon(self) -> None:
        if self._goes_on:
            return
        self._goes_on = True
        if self._chunks > CROWD_CHUNKS:
            self.host.crowd.add(self.go_on)
        else:
            self.loop.call_soon(self.go_on)

    def go_on(self) -> None:
        """Continue after other connections have run: parse, and start requests."""
        self._goes_on = False
        if self.transport.is_closing():
            return
        self._data_at = self.loop.time()  # until now the server did not read
        self._take_turns()
        self.listen()
        if self._unparsed and not self.flow.read_paused:  # else parsing continues when the application caught up
            self._parse_some()

    # ---- For exchanges ----

    def answered(self, exchange: RunningExchange) -> None:
        """A request is answered: start the next one, or send a refusal that waited for it."""
        self.running = None
        self._learned_from = b""  # a further request is not the one at the beginning of these bytes
        self._idle_at = self._data_at if self._is_in_turn else self.loop.time()
        if (
            exchange.keep_alive
            and not (self.waiting or self._unparsed or self.is_stopping or self.flow.read_paused)
            and self._last_words is None
        ):
            return  # nothing waits
        if not exchange.keep_alive:
            self._is_deaf = True
            self.transport.close()
        elif self._last_words is not None and not self.waiting:
            self._say_and_close(self._last_words)
        elif self.is_stopping and not self.waiting:
            self._is_deaf = True  # the head of a streamed answer was sent before the stop and promised keep-alive
            self.transport.close()
        elif not self._is_in_turn:
            self.go_on()

    def hand_over(self, rest: bytes) -> None:
        """Pass the connection to the surface that serves WebSockets here, which is told when the connection is lost."""
        assert self._websocket is not None
        upgraded = self._websocket()
        handshake = b"GET %b HTTP/1.1\r\n%b\r\n" % (self._url, header_block(self._headers))
        rest, self._unparsed = rest + self._unparsed, b""
        self._parser = self._websocket = None
        self._url, self._headers, self._special = b"", [], []  # an open WebSocket keeps no head
        if self.account is not None:
            leave_account(self)  # the conversation is counted for its own principal
        self.flow.resume_reading()
        self.flow.hold(False)
        self.host.connections.discard(self)
        self.host.connections.add(upgraded)
        upgraded.on_lost = partial(self._leave, upgraded)
        upgraded.connection_made(self.transport)
        upgraded.data_received(handshake)
        if rest:
            upgraded.data_received(rest)
        self.transport.set_protocol(upgraded)  # type: ignore[arg-type]

    # ---- Time limits and ends ----

    def is_overdue(self, now: float) -> bool:
        """Whether a request makes no progress: no bytes, a head or body that takes too long, or no request at all."""
        if not self._is_arriving:
            return self.latest is None and now - self._opened_at >= self.limits.idle_seconds
        if self.flow.read_paused:
            return False  # the server itself is not reading
        longest = self.limits.head_seconds if self._is_head_open else self.limits.body_seconds
        return now - self._data_at >= self.limits.silence_seconds or now - self._began_at >= longest

    def is_idle(self, now: float) -> bool:
        """Whether the connection was kept alive for another request, and none has come in time."""
        is_free = self.running is None and not self.waiting and not self._is_arriving and self.latest is not None
        return is_free and now - self._idle_at >= self.limits.idle_seconds

    def is_stalled(self, now: float) -> bool:
        """Whether the client has read almost nothing of its answer for too long; called regularly."""
        if self._stalled_at is None:
            return False
        unsent = self.transport.get_write_buffer_size()
        if unsent <= self._unsent - STALL_BYTES:
            self._stalled_at, self._unsent = now, unsent
        self._unsent = max(self._unsent, unsent)  # more may have been written
        return now - self._stalled_at >= self.limits.stall_seconds

    def is_stuck(self, now: float) -> bool:
        """Whether a closing connection has sent none of its last bytes for too long; called regularly."""
        unsent = self.transport.get_write_buffer_size()
        if self._closing_at is None or unsent < self._unsent:
            self._closing_at, self._unsent = now, unsent
        return now - self._closing_at >= self.limits.stall_seconds

    def refuse(self, refusal: Refusal) -> None:
        """End the connection with a refusal, after the answers to earlier requests.

        Otherwise a client would take the refusal as the answer to an append that is being committed.
        """
        self._is_deaf = True
        latest = self.latest
        if not self._is_head_open and latest is not None:
            if latest.has_begun:
                self.transport.close()
                return
            if latest.is_answered:  # the answer is held behind earlier ones: it is sent, and is the last
                latest.keep_alive = False
                self.flow.pause_reading()
                return
            self._give_up(latest)
        if self.running is not None or self.waiting:
            self._last_words = refusal
            self.flow.pause_reading()
        else:
            self._say_and_close(refusal)

    def shutdown(self) -> None:
        """The server is stopping: close at once, or after the pending answers."""
        self.is_stopping = True
        if self.running is None and not self.waiting:
            self.transport.close()

    def _give_up(self, broken: HttpExchange) -> None:
        """The body of the latest request is malformed: tell its handler that the client has disconnected."""
        if self.running is broken:
            self.running = None
        else:
            self.waiting.remove(broken)
        broken.lose()

    def _say_and_close(self, refusal: Refusal) -> None:
        self._last_words = None
        self.application.refused(refusal)
        body = problem_body(refusal)
        own = header_block([*problem_headers(refusal), *SECURITY, (b"x-request-id", os.urandom(8).hex().encode())])
        framing = b"content-length: %d\r\n%b\r\n" % (len(body), CLOSE_LINE)
        self.transport.write(b"".join((STATUS_LINES[refusal.kind.status], self.host.date, own, framing, body)))
        self.transport.close()

    def _leave(self, one: HttpProtocol | UpgradedConnection) -> None:
        """Remove this connection from the host."""
        self.host.connections.discard(one)
        if self.account is not None:
            leave_account(self)
        if self._is_counted:
            self._is_counted = False
            self.host.connection_limit.leave(self._remote)

    @property
    def _remote(self) -> str:
        return self.client[0] if self.client else ""


def _address(transport: asyncio.Transport, name: str) -> tuple[str, int] | None:
    found = transport.get_extra_info(name)
    return (str(found[0]), int(found[1])) if isinstance(found, tuple) and len(found) >= 2 else None
