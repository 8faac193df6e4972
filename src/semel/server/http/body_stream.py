"""The body of a streamed answer: chunked, or of the length that its head announces.

A head with a length waits for the first piece of the body, and both are sent together. A head without a length, such as
that of an event stream, is sent at once, because the first piece may take long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from semel.server.http.answer import ClientGoneError, StreamedAnswer
from semel.server.http.answer_head import BODILESS, CHUNKED_LINE, FlawedAnswerError, head_of, length_of
from semel.server.http.request import Request

if TYPE_CHECKING:
    from semel.server.http.exchange import HttpExchange

JOINED_BYTES = 64 * 1024


class BodyStream:
    """Sends one streamed answer, and is the `BodyWriter` of its producer."""

    def __init__(self, exchange: HttpExchange, answer: StreamedAnswer, request: Request) -> None:
        """Render the head; `FlawedAnswerError` if HTTP does not allow it."""
        self._exchange = exchange
        self._connection = exchange.connection
        self._answer = answer
        self._request = request
        self._left = length_of(answer.headers)
        """Bytes of a body of known length that are still to be sent; None for a chunked one."""
        is_chunked = self._left is None and request.method != "HEAD" and answer.status not in BODILESS
        framing = exchange.framed(answer.headers, CHUNKED_LINE if is_chunked else b"")
        self._head = head_of(answer.status, answer.headers, request, self._connection.host.date, framing)

    async def run(self) -> None:
        """Send the answer; `ClientGoneError` if the client disconnects before the end."""
        if self._exchange.is_answered:
            raise FlawedAnswerError("a request was answered twice")
        self._exchange.is_answered = self._exchange.has_begun = True
        self._connection.application.answered(self._request, self._answer.status)
        if not self._left or self._request.method == "HEAD":
            self._put(b"")
        if self._request.method != "HEAD":
            await self._answer.produce(self)
            self._end()
        if self._request.gone:
            raise ClientGoneError
        self._exchange.finish()

    async def write(self, piece: bytes) -> None:
        """Send a piece; waits while the client does not keep up, and raises `ClientGoneError` once it has
        disconnected.
        """
        if self._connection.flow.write_paused:
            await self._connection.flow.drain()
        if self._request.gone or self._connection.transport.is_closing():
            raise ClientGoneError
        if piece:
            self._send(piece)

    def offer(self, piece: bytes) -> bool:
        """Send a piece at once; false, and nothing is sent, if the client does not keep up or has disconnected."""
        connection = self._connection
        if connection.flow.write_paused or self._request.gone or connection.transport.is_closing():
            return False
        self._send(piece)
        return True

    def _send(self, piece: bytes) -> None:
        if self._left is None:
            self._put(b"%x\r\n%b\r\n" % (len(piece), piece))
            return
        self._left -= len(piece)
        if self._left < 0:
            raise FlawedAnswerError("the body of an answer is longer than its content-length")
        self._put(piece)

    def _end(self) -> None:
        if self._request.gone or self._connection.transport.is_closing():
            raise ClientGoneError
        if self._left is None:
            self._put(b"0\r\n\r\n")
        elif self._left:
            raise FlawedAnswerError("the body of an answer is shorter than its content-length")

    def _put(self, piece: bytes) -> None:
        """Write a piece, after the head if that was not sent yet."""
        head, self._head = self._head, b""
        if head and len(piece) > JOINED_BYTES:
            self._connection.transport.write(head)
            head = b""
        if head or piece:
            self._connection.transport.write(head + piece if head else piece)
