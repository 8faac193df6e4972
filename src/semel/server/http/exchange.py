"""The connection's side of one request: its body as it arrives, and its answer, sent once.

When the connection is lost, the request is marked as gone, `on_gone` is called once, a reader of the body gets
`ClientGoneError`, and a later answer is dropped.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from semel.server.http.answer import CLOSE, Answer, ClientGoneError, Header, StreamedAnswer, nothing_held
from semel.server.http.answer_head import BODILESS, CLOSE_LINE, FlawedAnswerError, head_of
from semel.server.http.body_stream import BodyStream
from semel.server.http.plain_work import PlainWork
from semel.server.http.request import Request

if TYPE_CHECKING:
    from semel.server.http.head_shapes import HeadShape
    from semel.server.http.reader import RequestReader

JOINED_BYTES = 64 * 1024
"""A larger body is written separately from its head, so that it is not copied."""
BACKLOG_BYTES = 64 * 1024
"""Limit on the unread bytes of a body; beyond it the socket is not read."""
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class HttpExchange:
    """One request and its answer. Used on the event loop only."""

    is_pipelined = False

    __slots__ = (
        "_body",
        "_is_complete",
        "_waiter",
        "connection",
        "has_begun",
        "is_answered",
        "keep_alive",
        "request",
        "waits_for_continue",
    )

    def __init__(self, connection: RequestReader, keep_alive: bool) -> None:
        self.connection = connection
        self.keep_alive = keep_alive
        """Whether the request allows the connection to be kept alive after the answer."""
        self.request: Request | None = None
        """The request; None once it is answered."""
        self.has_begun = False
        """Whether the head of the answer was passed to the connection."""
        self.is_answered = False
        """Whether the application has answered; the answer may be held until the client has read earlier ones."""
        self.waits_for_continue = False
        self._body: bytes | bytearray = b""
        self._is_complete = False
        self._waiter: asyncio.Future[None] | None = None

    def shaped(self, raw_path: bytes, headers: list[Header], request_id: bytes, began_at: float) -> Request:
        """A POST whose head was known by its bytes, as the parser would have represented it."""
        at = self.connection
        request = Request(self, "POST", raw_path, b"", headers, "1.1", at.scheme, at.client, at.server)
        request.id, request.began_at = request_id, began_at
        return request

    # ---- The body, from the connection ----

    def take(self, piece: bytes) -> None:
        """Add a piece of the body; after the answer it is dropped."""
        if self.request is None:
            return
        if not self._body:
            self._body = piece
            if self._waiter is None:
                return
        elif isinstance(self._body, bytearray):
            self._body += piece
        else:
            self._body = bytearray(self._body) + piece  # small pieces would take many times their size
        self._wake()

    def complete(self) -> None:
        """The body is complete."""
        self._is_complete = True
        if self._waiter is not None:
            self._wake()

    @property
    def is_behind(self) -> bool:
        """Whether more than `BACKLOG_BYTES` of the body are unread, so that the socket is not read."""
        return len(self._body) > BACKLOG_BYTES

    def start(self) -> None:
        """Pass the request to the application."""
        request = self.request
        assert request is not None
        if self._is_complete:
            if self._body:
                request.body, self._body = bytes(self._body), b""
        else:
            request.is_whole = False
        answer = self.connection.application.handle(request)
        if answer is not None:
            self.reply(answer)

    def learn(self, make: Callable[[bytes], HeadShape | None], size: int, prefix: bytes = b"") -> None:
        """Recognize requests like this one by their heads from now on."""
        if self.keep_alive and not self.waits_for_continue:
            self.connection.learn(make, size, prefix)

    def lose(self) -> None:
        """The client has disconnected, or its request is malformed."""
        request, self.request = self.request, None
        self._body = b""
        if request is not None:
            request.gone = True
            self._wake()
            on_gone, request.on_gone = request.on_gone, None
            if on_gone is not None:
                on_gone()
            request.end_trace()

    def _wake(self) -> None:
        if self._waiter is not None:
            if not self._waiter.done():
                self._waiter.set_result(None)
            self._waiter = None

    # ---- For the application ----

    async def read_piece(self) -> bytes:
        """The next piece of the body, b"" after the last one; `ClientGoneError` if it will never arrive."""
        while self.request is not None:
            if self._body:
                piece, self._body = bytes(self._body), b""
                self.connection.listen()
                return piece
            if self._is_complete:
                return b""
            if self.waits_for_continue:
                self.waits_for_continue = False
                self.connection.transport.write(CONTINUE)
            self._waiter = self.connection.loop.create_future()
            await self._waiter
        raise ClientGoneError

    def reply(self, answer: Answer | StreamedAnswer) -> None:
        """Send the answer; does nothing if the client has disconnected. An answer that HTTP does not allow becomes a
        500.
        """
        request, connection = self.request, self.connection
        if isinstance(answer, StreamedAnswer):
            connection.spawn(self._stream(answer), answer.close)
            return
        if request is None or self.is_answered or connection.transport.is_closing():
            return
        self.is_answered = True
        if connection.flow.write_paused:
            connection.spawn(self._send_later(answer), nothing_held)
        else:
            self._send(answer, request)

    def reply_late(self, answer: Answer, seconds: float) -> None:
        """As `reply`, after this time: meanwhile the connection begins no other request."""
        self.connection.loop.call_later(seconds, self.reply, answer)

    def fail(self, request: Request, error: Exception) -> None:
        """Reply with the refusal for an error, or with an internal fault."""
        answer = self.connection.application.failed(request, error)
        forget_frames(error)
        seconds: float = getattr(error, "late_seconds", 0.0)
        if seconds:
            self.reply_late(answer, seconds)
        else:
            self.reply(answer)

    async def _send_later(self, answer: Answer) -> None:
        """Hold this answer until the client has read the one before, or has disconnected."""
        await self.connection.flow.drain()
        if self.request is not None and not self.connection.transport.is_closing():
            self._send(answer, self.request)

    def _send(self, answer: Answer, request: Request) -> None:
        connection = self.connection
        try:
            data = self._rendered(answer, request)
        except FlawedAnswerError as error:
            answer = connection.application.failed(request, error)
            data = self._rendered(answer, request)
        self.has_begun = True
        connection.application.answered(request, answer.status)
        connection.transport.write(data)
        if len(answer.body) > JOINED_BYTES and request.method != "HEAD" and answer.status not in BODILESS:
            connection.transport.write(answer.body)
        self.finish()

    def _rendered(self, answer: Answer, request: Request) -> bytes:
        """The head, followed by the body unless it is large."""
        status, headers, body = answer
        if status in BODILESS:
            framing = body = b""
        elif request.method == "HEAD":
            framing, body = b"content-length: %d\r\n" % len(body) if body else b"", b""
        else:
            framing = b"content-length: %d\r\n" % len(body)
        if len(body) > JOINED_BYTES:
            body = b""
        if not self.keep_alive or self.waits_for_continue or self.connection.is_stopping or CLOSE in headers:
            framing = self.framed(headers, framing)
        return head_of(status, headers, request, self.connection.host.date, framing) + body

    def framed(self, headers: list[Header], framing: bytes) -> bytes:
        """Decide whether the connection is kept alive after the answer; if not, add `connection: close`."""
        if CLOSE in headers:
            self.keep_alive = False
            return framing
        if self.waits_for_continue and not self._is_complete:
            self.keep_alive = False  # the client may or may not send its body: the next bytes could be part of it
        if self.connection.is_stopping and not self.connection.waiting:
            self.keep_alive = False
        return framing if self.keep_alive else framing + CLOSE_LINE

    def finish(self) -> None:
        """The answer was written completely: start the next request."""
        if self.request is not None:
            self.request.on_gone = None  # it refers back to the request
        self.request = None
        self._body = b""
        self.connection.answered(self)

    def later(self, work: Coroutine[Any, Any, Answer | StreamedAnswer]) -> None:
        """Run a coroutine in a task and reply with its result; `ClientGoneError` and cancellation end it without an
        answer.
        """
        if self.request is None:
            work.close()
        else:
            self.connection.spawn(self.run(work, self.request), work.close)

    def proceed(self, work: Coroutine[Any, Any, Answer | StreamedAnswer]) -> None:
        """Run it at once and reply with its result; it gets a task only if it waits a second time."""
        if self.request is None:
            work.close()
        else:
            PlainWork(self, work, self.request).start()

    async def run(self, work: Awaitable[Answer | StreamedAnswer], request: Request) -> None:
        """Wait for the result of work and reply with it."""
        try:
            answer = await work
        except ClientGoneError:
            self.end_unanswered()
            return
        except asyncio.CancelledError:
            self.end_unanswered()
            raise
        except Exception as error:  # noqa: BLE001 - the application logs it and makes the answer
            self.fail(request, error)
            return
        if isinstance(answer, StreamedAnswer):
            try:
                await self._stream(answer)
            finally:
                answer.close()
        else:
            self.reply(answer)

    async def _stream(self, answer: StreamedAnswer) -> None:
        """Send a streamed answer; if it fails after its head, the connection is closed."""
        request = self.request
        if request is None or self.connection.transport.is_closing():
            return
        try:
            await self.connection.flow.drain()
            if self.request is None or self.connection.transport.is_closing():
                return
            await BodyStream(self, answer, request).run()
        except ClientGoneError:
            self.end_unanswered()
        except asyncio.CancelledError:
            self.end_unanswered()
            raise
        except Exception as error:  # noqa: BLE001 - the application logs it
            fault = self.connection.application.failed(request, error)
            forget_frames(error)
            if self.has_begun:
                self.end_unanswered()
            else:
                self.reply(fault)

    def end_unanswered(self) -> None:
        """Close the connection, because an incomplete answer can be signalled in no other way."""
        if self.request is not None:
            self.connection.transport.close()

    def bound_unsent(self, size: int) -> None:
        """Keep at most about `size` bytes in the system's send buffer, so that a slow reader is noticed."""
        own = self.connection.transport.get_extra_info("socket")
        if own is not None and hasattr(socket, "TCP_NOTSENT_LOWAT"):
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, size)

    def abort(self) -> None:
        """Close the connection at once; unsent bytes are lost."""
        self.connection.transport.abort()


def forget_frames(error: BaseException) -> None:
    """Let go of the frames that an error has passed, which was reported.

    A frame on its way may hold the error, or the future that failed with it: then request and connection would stay in
    memory until a garbage collection, which is rare.
    """
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is not None and one.__traceback__ is not None:
            one.__traceback__ = None
            left += (one.__cause__, one.__context__)
