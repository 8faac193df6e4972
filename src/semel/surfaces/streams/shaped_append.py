"""Plain appends whose head has a known shape: from the bytes of a request to the bytes of its answer.

The shape holds everything that is the same in each of these requests: the stream, the content type, the credential and
the answer's constant headers. Functions of the full path parse the rest, and the credential is checked again for each
request. If anything in the request or in the outcome is unusual, the full path takes over.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Protocol

from semel.kernel.errors import Refusal
from semel.kernel.json.messages import single_message
from semel.kernel.keys import pack, visible_key
from semel.server.auth.authentication import admitted_again, judge_again
from semel.server.auth.principals import Role
from semel.server.context import Context
from semel.server.http.answer_head import STATUS_LINES
from semel.server.http.exchange import HttpExchange
from semel.server.http.request import Request
from semel.server.ops.log_facts import ShapedOrigin
from semel.server.ops.request_times import HTTP
from semel.surfaces.streams.commands import Append, Appended
from semel.surfaces.streams.contract import Streams
from semel.surfaces.streams.find import SURFACE, append_retries
from semel.surfaces.streams.metrics import StreamsMetrics
from semel.surfaces.streams.rules.media_type import is_json
from semel.surfaces.streams.rules.offsets import OFFSET
from semel.surfaces.streams.rules.plain_append import STATUS, PlainAppend
from semel.surfaces.streams.wire.requests import parse_content, plain_fingerprint

if TYPE_CHECKING:
    from semel.server.http.protocol import HttpProtocol
    from semel.server.http.reader import RequestReader

VARYING = (b"x-request-id", b"traceparent", b"origin", b"expect", b"transfer-encoding")
"""Headers that rule out a shape: their values change, or the full path acts on them."""
COUNTED = (SURFACE, "POST", STATUS)
_REPLAYED = b"idempotency-replayed: true\r\n"
_ANSWER = STATUS_LINES[STATUS] + b"%bstream-next-offset: " + OFFSET + b"\r\n%bx-request-id: %b\r\n%b"
"""The answer with its date, offset, replay mark, request id and further headers."""


class AppendReplies(Protocol):
    """The interface of the full path for answers."""

    def reply(self, request: Request, answer: Appended | Refusal, append: PlainAppend) -> None:
        """Send the outcome of an append."""

    def refuse(self, request: Request, error: BaseException) -> None:
        """Send the refusal for an error."""


class AppendShape:
    """The shape of one client's plain appends to one stream."""

    is_pipelined = False
    counted = COUNTED

    def __init__(
        self,
        context: Context,
        streams: Streams,
        replies: AppendReplies,
        metrics: StreamsMetrics,
        name: bytes,
        command: Append,
        request: Request,
        token: bytes | None,
        most_messages: int,
        length: int,
    ) -> None:
        assert command.content_type is not None
        self.context = context
        self.streams = streams
        self.replies = replies
        self.outcomes = metrics.outcomes
        self.requests = context.metrics.requests
        self.seconds = context.metrics.times.of(SURFACE, HTTP)
        self.note = context.retries.note
        self.length = length
        self.scope = command.scope
        self.lock = b"stream:" + command.scope
        self.content_type = command.content_type
        self.is_keyed = command.key is not None
        self._name = name
        self._token = token
        self._most = most_messages
        self._is_json = is_json(command.content_type)
        self._engine = context.engine
        self._headers = [header for header in request.headers if header[0] != b"idempotency-key"]
        self.raw_path = request.raw_path
        self.common = request.common + b"\r\n"
        self.request_ids = context.request_ids

    def take(self, connection: HttpProtocol, key: bytes, body: bytes) -> bool:
        """Start an append; False leaves the request to the full path."""
        principal = ""
        if self.context.principals.are_known:
            known = judge_again(self.context, self._token, connection)
            if known is None or not known.may(Role.WRITE, SURFACE, self._name):
                return False
            principal = known.actor
        append = ShapedAppend(self, connection, principal)
        if self.is_keyed:
            parsed = visible_key(key)
            if parsed is None:
                return False
            append.sent_key, append.key, append.fingerprint = key, pack(parsed), plain_fingerprint(body)
        message = single_message(body) if self._is_json else body
        if message is None:  # an array, or a text that has to be read in pieces
            content = parse_content(self.content_type, body, self._most)
            if content.flaw is not None:
                return False
            message, append.messages = content.data, content.messages
        if not message:
            return False
        append.data, append.size = message, len(message)
        if not self._engine.offer_plain(append):
            return False
        if principal:
            admitted_again(self.context, connection, self.length)
        connection.running = append
        return True

    def request(self, exchange: HttpExchange, append: ShapedAppend) -> Request:
        """The request as the full path represents it."""
        headers = [*self._headers, (b"idempotency-key", append.sent_key)] if self.is_keyed else self._headers
        request = exchange.shaped(self.raw_path, headers, append.drawn_id(), append.admitted_at)
        request.namespace = self.context.namespace
        request.common, request.surface, request.principal = self.common[:-2], SURFACE, append.principal
        return request


class ShapedAppend(ShapedOrigin, PlainAppend):
    """A plain append that runs on a connection in place of an exchange."""

    __slots__ = ("connection", "sent_key", "shape")

    shape: AppendShape
    keep_alive = True
    is_pipelined = False

    def __init__(self, shape: AppendShape, connection: RequestReader, principal: str) -> None:
        """An append without a key and without content, which follow.

        All attributes are set here and not by four constructors, because the time counts.
        """
        self.shape = shape
        self.connection = connection
        self.principal = principal
        self.contract = shape.streams
        self.lock = shape.lock
        self.scope = shape.scope
        self.content_type = shape.content_type
        self.sent_key = self.fingerprint = self.data = b""
        self.key = None
        self.messages = 1
        self.size = 0
        self.gone = False
        self.future = None
        self.admitted_at = 0.0
        self._watchers = ()

    def lose(self) -> None:
        """The client has disconnected."""
        self.leave()

    def settle(self, answer: Appended | Refusal) -> None:
        """Send the answer; an answer that is not plain takes the full path."""
        connection = self.connection
        transport, shape = connection.transport, self.shape
        is_here = not self.gone and connection.running is self and not transport.is_closing()
        if (
            type(answer) is not Appended
            or not _is_plain(answer)
            or (is_here and (connection.is_stopping or connection.flow.write_paused))
        ):
            if is_here:
                shape.replies.reply(self._request(), answer, self)
            return
        _, tail, _, _, _, replayed, is_new, tail_epoch = answer
        shape.outcomes["stored" if is_new else "replay"] += 1
        if replayed:
            self.note_retry()
        if not is_here:
            return
        shape.requests[COUNTED] += 1
        shape.seconds.observe(monotonic() - self.admitted_at)
        replay = _REPLAYED if replayed else b""
        transport.write(
            _ANSWER % (connection.host.date, tail_epoch, tail, replay, next(shape.request_ids), shape.common)
        )
        connection.answered(self)

    def note_retry(self) -> None:
        """The append had taken effect before."""
        client, key = self.connection.client, self.key
        assert key is not None, "only an append with a key is replayed"
        address = client[0] if client else ""
        self.shape.note(SURFACE, append_retries(self.scope, key), self.admitted_at, self.principal, address)

    def fail(self, error: BaseException) -> None:
        """Send the refusal for the error."""
        if not self.gone and self.connection.running is self:
            self.shape.replies.refuse(self._request(), error)

    def _request(self) -> Request:
        """Replace this object by an exchange of the full path, and return its request."""
        exchange = HttpExchange(self.connection, keep_alive=True)
        exchange.request = request = self.shape.request(exchange, self)
        self.connection.running = exchange
        return request


def _is_plain(answer: Appended) -> bool:
    """Whether an answer has only the headers of the template."""
    status, _, closed, epoch, _, replayed, is_new, _ = answer
    return status == STATUS and not closed and epoch is None and (is_new or replayed)
