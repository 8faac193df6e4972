"""One HTTP/1.1 request and its answer on a uvicorn connection, written in as few socket writes as possible.

uvicorn writes the head of an answer and its body apart, which costs a system call and wakes the client for half an
answer. Here a head with a content length waits for the first piece of its body, and both are written together; a head
without a length, as that of an event stream, is written at once, because its body may take long to begin.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from uvicorn.protocols.http.httptools_impl import HEADER_RE, HEADER_VALUE_RE, STATUS_LINE, RequestResponseCycle

from semel.server.asgi import Header

JOINED_BYTES = 64 * 1024
"""A larger piece is written apart from its head, to avoid a copy."""


class Cycle(RequestResponseCycle):
    """One request and its answer: receives as uvicorn does, and sends with fewer writes."""

    _head = b""
    """The head of an answer that waits for its body."""

    async def send(self, message: Any) -> None:
        """Take the head of the answer, or a piece of its body."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        kind = message["type"]
        if kind == "http.response.start" and not self.response_started:
            self._begin(message["status"], message["headers"])
        elif kind == "http.response.body" and self.response_started and not self.response_complete:
            self._go_on(message.get("body", b""), message.get("more_body", False))
        else:
            raise RuntimeError(f"{kind} is out of turn")

    def _begin(self, status: int, own_headers: Sequence[Header]) -> None:
        self.response_started = True
        if self.waiting_for_100_continue and self.more_body:
            self.keep_alive = False  # its body may follow or not: what comes next could not be told from a request
        self.waiting_for_100_continue = False
        headers = [*self.default_headers, *own_headers]
        if HEADER_RE.search(b"".join([name for name, _ in headers])):
            raise RuntimeError("a header has a name that HTTP does not allow")
        if HEADER_VALUE_RE.search(b"".join([value for _, value in headers])):
            raise RuntimeError("a header has a value that HTTP does not allow")
        lines = [STATUS_LINE[status]]
        is_told_to_close = False
        for name, value in headers:
            lines += (name, b": ", value, b"\r\n")
            if name == b"content-length":
                self.expected_content_length, self.chunked_encoding = int(value), False
            elif name == b"connection" and value == b"close":
                self.keep_alive, is_told_to_close = False, True
        if not self.keep_alive and not is_told_to_close:
            lines.append(b"connection: close\r\n")
        if self.chunked_encoding is None and self.scope["method"] != "HEAD" and status not in (204, 304):
            self.chunked_encoding = True
            lines.append(b"transfer-encoding: chunked\r\n")
        lines.append(b"\r\n")
        self._head = b"".join(lines)
        if not self.expected_content_length:
            self._write(b"")

    def _go_on(self, body: bytes, more: bool) -> None:
        if self.scope["method"] == "HEAD":
            self.expected_content_length, body = 0, b""
        elif self.chunked_encoding:
            body = b"%x\r\n%s\r\n" % (len(body), body) if body else b""
            body = body if more else body + b"0\r\n\r\n"
        else:
            self.expected_content_length -= len(body)
        if self.expected_content_length < 0 or (self.expected_content_length and not more):
            raise RuntimeError("the body of an answer is not as long as its head says")
        self._write(body)
        if not more:
            self.response_complete = True
            self.message_event.set()
            if not self.keep_alive:
                self.transport.close()
            self.on_response()

    def _write(self, piece: bytes) -> None:
        """Write a piece of the answer, behind its head if that is still here."""
        head, self._head = self._head, b""
        if head and len(piece) > JOINED_BYTES:
            self.transport.write(head)
            head = b""
        if head or piece:
            self.transport.write(head + piece)
