"""WebSocket handshakes: refused like HTTP requests, with the same request id, audit lines, counts and formats.

A handshake is an HTTP request until it is accepted. A browser lets every page open a WebSocket, so the origin is
checked here, by the rule for all requests. The connection ends after the answer to a refused handshake.
"""

from __future__ import annotations

from email.utils import formatdate
from time import monotonic
from typing import cast

from websockets.http11 import Request as HandshakeMessage

from semel.server.context import Context
from semel.server.http.answer import Answer
from semel.server.http.answer_head import CLOSE_LINE, head_of
from semel.server.http.cors import provenance_in
from semel.server.http.request import Exchange, Request
from semel.server.ops.access_log import LoggedTimes
from semel.server.ops.log_facts import KnownOrigin
from semel.server.ops.request_times import WEBSOCKET
from semel.server.refusal import origin_refusal, refusal_of
from semel.server.surface import HttpSurface
from semel.server.websocket.conversation import Conversation
from semel.server.websocket.logged_messages import log_messages
from semel.server.websocket.traced_messages import trace_messages


class Handshakes:
    """The handshakes of one surface."""

    def __init__(self, context: Context, surface: HttpSurface) -> None:
        self._context = context
        self._surface = surface
        self._policy = context.settings.origin_policy

    def request_of(self, message: HandshakeMessage, remote: str) -> Request:
        """The handshake as an HTTP request."""
        path, _, query = _bytes(message.path).partition(b"?")
        path = path.removeprefix(self._context.prefix)
        headers = [(_bytes(name).lower(), _bytes(value)) for name, value in message.headers.raw_items()]
        # A handshake has no body and is answered at once, so it needs no exchange.
        request = Request(cast(Exchange, None), "GET", path, query, headers, client=(remote, 0))
        request.id = self._context.request_id(request.fields.get(b"x-request-id"))
        request.surface, request.namespace = self._surface.surface, self._context.namespace
        request.common = self._surface.common(request)
        return request

    def foreign(self, request: Request) -> Answer | None:
        """The refusal of a page or host name that is not allowed; None if it is allowed."""
        provenance = provenance_in(request.headers)
        refusal = self._policy.refusal(provenance)
        return refusal and origin_refusal(self._context, self._surface, request, provenance, refusal)

    def refused(self, request: Request, error: Exception) -> Answer:
        """The refusal for an error, in the format of the surface."""
        return refusal_of(self._context, self._surface, request, error)

    def malformed(self, request: Request, error: Exception) -> Answer:
        """The refusal of an invalid handshake; it names the supported version."""
        answer = self.refused(request, error)
        return answer._replace(headers=[*answer.headers, (b"sec-websocket-version", b"13")])

    def begun(self, request: Request, conversation: Conversation) -> None:
        """A handshake was accepted: its id and its trace are those of the messages of the connection."""
        conversation.handshake = KnownOrigin(request.log_facts())
        access = self._context.access
        if access is not None:
            shaken = access.facts(request, 101, None, monotonic() - request.began_at)
            access.add(shaken)
            times = self._context.metrics.times.of(shaken.surface, WEBSOCKET)
            conversation.time_messages(LoggedTimes(times, access, shaken, lambda: conversation.actor))
            log_messages(conversation)
        tracing = self._context.tracing
        if tracing is not None:
            trace_messages(tracing, conversation, request.fields, self._context)

    def render(self, request: Request, answer: Answer) -> bytes:
        """An answer as bytes, after which the connection ends; the answer is counted."""
        self._context.metrics.answered(request.surface, request.method, answer.status, request.began_at)
        date = b"date: %b\r\n" % formatdate(self._context.world.wall_ms() / 1_000, usegmt=True).encode()
        framing = b"content-length: %d\r\n%b" % (len(answer.body), CLOSE_LINE)
        sent = head_of(answer.status, answer.headers, request, date, framing) + answer.body
        if self._context.access is not None:
            access = self._context.access
            access.add(access.facts(request, answer.status, len(sent), monotonic() - request.began_at))
        return sent


def _bytes(text: str) -> bytes:
    """The bytes as sent, before `websockets` decoded them."""
    return text.encode("utf-8", "surrogateescape")
