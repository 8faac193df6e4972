"""Plain appends whose head has a known shape: from the bytes of a request to the bytes of its answer.

The shape holds everything that is the same in each of these requests: the stream, the content type, the credential and
the answer's constant headers. Functions of the full path parse the rest, and the credential is checked again for each
request. If anything in the request or in the outcome is unusual, the full path takes over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from semel.engine.contract import EngineError
from semel.kernel.errors import Refusal
from semel.kernel.keys import InvalidKeyError, pack, parse_idempotency_key
from semel.server.auth.authentication import judge_again
from semel.server.auth.principals import Role
from semel.server.context import Context
from semel.server.fronts.grant import GrantableShape
from semel.server.http.answer_head import STATUS_LINES
from semel.server.http.exchange import HttpExchange
from semel.server.http.request import Request
from semel.surfaces.streams.commands import Append, Appended, Content
from semel.surfaces.streams.contract import Streams
from semel.surfaces.streams.metrics import StreamsMetrics
from semel.surfaces.streams.rules.offsets import format_offset
from semel.surfaces.streams.rules.plain_append import STATUS, PlainAppend
from semel.surfaces.streams.wire.requests import fingerprint, parse_content

if TYPE_CHECKING:
    from semel.server.fronts.relayed_connection import RelayedConnection
    from semel.server.http.protocol import HttpProtocol

SURFACE = "streams"
VARYING = (b"x-request-id", b"traceparent", b"origin", b"expect", b"transfer-encoding")
"""Headers that rule out a shape: their values change, or the full path acts on them."""
_COUNTED = (SURFACE, "POST", STATUS)
_REPLAYED = b"idempotency-replayed: true\r\n"


class AppendReplies(Protocol):
    """The interface of the full path for answers."""

    def reply(self, request: Request, answer: Appended | Refusal) -> None:
        """Send the outcome of an append."""

    def refuse(self, request: Request, error: BaseException) -> None:
        """Send the refusal for an error."""


class AppendShape(GrantableShape):
    """The shape of one client's plain appends to one stream."""

    surface = SURFACE

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
        self.length = length
        self.scope = command.scope
        self.lock = b"stream:" + command.scope
        self.content_type = command.content_type
        self.is_keyed = command.key is not None
        self._name = name
        self._token = token
        self._most = most_messages
        self._headers = [header for header in request.headers if header[0] != b"idempotency-key"]
        self._raw_path = request.raw_path
        self.common = request.common + b"\r\n"

    def take(self, connection: HttpProtocol, key: bytes, body: bytes) -> bool:
        """Start an append; False leaves the request to the full path."""
        principal = ""
        if self.context.principals.are_known:
            known = judge_again(self.context, self._token)
            if known is None or not known.may(Role.WRITE, SURFACE, self._name):
                return False
            principal = known.actor
        packed, mark = None, b""
        if self.is_keyed:
            try:
                parsed = parse_idempotency_key([key])
            except InvalidKeyError:
                return False
            assert parsed is not None
            packed, mark = pack(parsed), fingerprint(body, False, None)
        content = parse_content(self.content_type, body, self._most)
        if content.flaw is not None or not content.data:
            return False
        append = ShapedAppend(self.streams, self.lock, self.scope, packed, mark, self.content_type, content, principal)
        append.shape, append.connection, append.sent_key = self, connection, key
        if not self.context.engine.has_room(append.size, principal):
            return False
        self.context.engine.admit_plain(append)
        if principal:
            self.context.meter.add("auth_success_active")
        connection.running = append
        return True

    def facts(self) -> tuple[bytes, int, bytes]:
        """What a front needs to read such appends and to answer them."""
        return self.content_type, self._most, self.common

    def admit(self, connection: RelayedConnection, values: Sequence[Any]) -> None:
        """Start an append that a front has read; a credential that is no longer active goes to the full path."""
        packed, mark, data, messages, key = values
        principal = ""
        if self.context.principals.are_known:
            known = judge_again(self.context, self._token)
            if known is None or not known.may(Role.WRITE, SURFACE, self._name):
                connection.ask_again()
                return
            principal = known.actor
        content = Content(data, messages)
        append = RelayedAppend(self.streams, self.lock, self.scope, packed, mark, self.content_type, content, principal)
        append.shape, append.relay, append.sent_key = self, connection, key
        connection.running = append
        try:
            self.context.engine.admit_plain(append)
        except EngineError as error:
            append.fail(error)
            return
        if principal:
            self.context.meter.add("auth_success_active")

    def request(self, exchange: HttpExchange, key: bytes, principal: str) -> Request:
        """The request as the full path represents it."""
        headers = [*self._headers, (b"idempotency-key", key)] if self.is_keyed else self._headers
        connection = exchange.connection
        request = Request(
            exchange,
            "POST",
            self._raw_path,
            b"",
            headers,
            "1.1",
            connection.scheme,
            connection.client,
            connection.server,
        )
        request.id = self.context.request_id()
        request.common, request.surface, request.principal = self.common[:-2], SURFACE, principal
        return request


class ShapedAppend(PlainAppend):
    """A plain append that runs on a connection in place of an exchange."""

    __slots__ = ("connection", "sent_key", "shape")

    shape: AppendShape
    connection: HttpProtocol
    sent_key: bytes
    keep_alive = True

    def lose(self) -> None:
        """The client has disconnected."""
        self.leave()

    def settle(self, answer: Appended | Refusal) -> None:
        """Send the answer; an answer that is not plain takes the full path."""
        connection, shape = self.connection, self.shape
        is_here = not self.gone and connection.running is self and not connection.transport.is_closing()
        is_plain = isinstance(answer, Appended) and _is_plain(answer)
        if not is_plain or (is_here and (connection.is_stopping or connection.flow.write_paused)):
            if is_here:
                shape.replies.reply(self._request(), answer)
            return
        assert isinstance(answer, Appended)
        shape.outcomes["stored" if answer.is_new else "replay"] += 1
        if not is_here:
            return
        shape.context.metrics.requests[_COUNTED] += 1
        connection.transport.write(
            b"%bstream-next-offset: %b\r\n%bx-request-id: %b\r\n%b"
            % (
                STATUS_LINES[STATUS] + connection.host.date,
                format_offset(answer.tail, answer.tail_epoch),
                _REPLAYED if answer.replayed else b"",
                shape.context.request_id(),
                shape.common,
            )
        )
        connection.answered(self)

    def fail(self, error: BaseException) -> None:
        """Send the refusal for the error."""
        if not self.gone and self.connection.running is self:
            self.shape.replies.refuse(self._request(), error)

    def _request(self) -> Request:
        """Replace this object by an exchange of the full path, and return its request."""
        exchange = HttpExchange(self.connection, keep_alive=True)
        exchange.request = request = self.shape.request(exchange, self.sent_key, self.principal)
        self.connection.running = exchange
        return request


class RelayedAppend(PlainAppend):
    """A plain append that runs on a connection of a front."""

    __slots__ = ("relay", "sent_key", "shape")

    shape: AppendShape
    relay: RelayedConnection
    sent_key: bytes
    keep_alive = True

    def lose(self) -> None:
        """The client has disconnected, or its front has ended."""
        self.leave()

    def settle(self, answer: Appended | Refusal) -> None:
        """Let the front send the answer; one that is not plain is rendered here."""
        relay, shape = self.relay, self.shape
        is_here = not self.gone and relay.running is self
        if not (isinstance(answer, Appended) and _is_plain(answer)):
            if is_here:
                shape.replies.reply(self._request(), answer)
            return
        shape.outcomes["stored" if answer.is_new else "replay"] += 1
        if is_here:
            shape.context.metrics.requests[_COUNTED] += 1
            relay.settle(answer.tail, answer.tail_epoch, answer.replayed)

    def fail(self, error: BaseException) -> None:
        """Send the refusal for the error."""
        if not self.gone and self.relay.running is self:
            self.shape.replies.refuse(self._request(), error)

    def _request(self) -> Request:
        """Replace this object by an exchange of the full path, and return its request."""
        exchange = self.relay.exchange()
        exchange.request = request = self.shape.request(exchange, self.sent_key, self.principal)
        return request


def _is_plain(answer: Appended) -> bool:
    """Whether an answer has only the headers of the template."""
    return answer.status == STATUS and not answer.closed and answer.epoch is None and (answer.is_new or answer.replayed)
