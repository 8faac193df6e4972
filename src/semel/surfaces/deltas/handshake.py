"""The WebSocket handshake of deltas, and the connections that passed it.

A refusal is sent over HTTP, before the WebSocket exists: a client of this dialect reconnects at once after a WebSocket
was opened and closed, and with growing delays after a refused handshake. The token may be in the query, because a page
in a browser cannot set headers here; it is removed before the path is stored or logged.
"""

from __future__ import annotations

import asyncio
import logging
from urllib.parse import parse_qsl

from websockets.http11 import Request, Response

from semel.engine.back_pressure import NO_PRINCIPAL
from semel.engine.engine import WaitingCaller
from semel.kernel.errors import Problem, Refused
from semel.kernel.header_fields import HeaderFields
from semel.server.auth.authentication import authenticate
from semel.server.auth.principals import Role
from semel.server.http.answer import NO_STORE
from semel.server.websocket.transport import refused_handshake
from semel.surfaces.deltas.access import SURFACE
from semel.surfaces.deltas.commands import DeltaRefusal, RefusedDeltas
from semel.surfaces.deltas.conversation import AcceptedClient, DeltaConversation
from semel.surfaces.deltas.exchange import API_VERSION, NO_PATH, STATIC, internal_refusal, refuse, server_refusal
from semel.surfaces.deltas.service import DeltaService
from semel.surfaces.deltas.subscribers import GatewaySubscribers
from semel.surfaces.deltas.wire.urls import split_path

_log = logging.getLogger("semel.deltas")

CALL = "sync/{}/ws"
"""The one path where a WebSocket of deltas is spoken."""


def is_handshake_path(raw_path: bytes) -> bool:
    """Whether a path, without its query, leads here."""
    route = split_path(raw_path)
    return route is not None and route.call == CALL


class DeltaHandshake:
    """Handles handshakes and keeps the register of connections; made once."""

    def __init__(self, service: DeltaService) -> None:
        self.service = service
        self._subscribers = GatewaySubscribers(service.context.engine.signals)
        self._most = service.settings.deltas_max_sockets

    def opened(self, conversation: DeltaConversation, gateway: str) -> None:
        """A connection was made."""
        self.service.audit_trail.sockets += 1
        self._subscribers.join(gateway, conversation)

    def closed(self, conversation: DeltaConversation, gateway: str) -> None:
        """A connection has ended."""
        self.service.audit_trail.sockets -= 1
        self._subscribers.leave(gateway, conversation)

    def fault(self) -> str:
        """Inside an exception handler: log the exception, and return the message for the client."""
        error_id = self.service.context.world.random_bytes(8).hex()
        _log.exception("fault in a connection", extra={"error_id": error_id})
        return f"Something went wrong here; connect again. Error id {error_id}."

    def judge(self, request: Request, remote: str) -> AcceptedClient | Response:
        """The authenticated client of a handshake, or the HTTP answer that refuses it."""
        path, _, query = request.path.partition("?")
        fields = _fields(request, query)
        try:
            return self._accepted(_bytes(path), fields, remote)
        except RefusedDeltas as refused:
            refusal = refused.refusal
        except Refused as refused:
            refusal = server_refusal(refused.problem)
        except asyncio.CancelledError:
            raise
        except Exception:  # noqa: BLE001 - whatever it is, the caller gets an answer and the log the details
            error_id = self.service.context.world.random_bytes(8).hex()
            _log.exception("fault in a handshake", extra={"error_id": error_id})
            refusal = internal_refusal(error_id)
        return self._refusal(refusal, fields)

    def refuse(self, request: Request) -> Response:
        """The answer to a handshake that is not in order."""
        if request.method == "GET":
            refusal = DeltaRefusal("VALIDATION_ERROR", "This is no handshake of WebSocket in version 13.")
        else:
            refusal = NO_PATH
        return self._refusal(refusal, _fields(request, ""))

    def reject(self, request: Request, problem: Problem) -> Response:
        """The answer to a handshake that may not reach this surface."""
        return self._refusal(DeltaRefusal(problem.code, problem.detail), _fields(request, ""))

    def _accepted(self, path: bytes, fields: HeaderFields, remote: str) -> AcceptedClient:
        route = split_path(path)
        assert route is not None, "only paths of a gateway are sent here"
        where = {"path": path.decode("latin-1"), "remote_addr": remote}
        principal = authenticate(self.service.gate, fields, lambda: where)
        actor = principal.actor if self.service.gate.principals.are_known else NO_PRINCIPAL
        asked = self.service.asked(principal, WaitingCaller(actor), where)
        self.service.enter(asked, Role.READ, route.gateway)
        if self.service.audit_trail.sockets >= self._most:
            raise RefusedDeltas("BACKPRESSURE_ERROR", "Too many WebSockets are open; try again in a moment.")
        return AcceptedClient(asked, route.gateway)

    def _refusal(self, refusal: DeltaRefusal, fields: HeaderFields) -> Response:
        self.service.audit_trail.refused(refusal)
        request_id = self.service.context.request_id(fields.get(b"x-request-id"))
        more = (
            *STATIC,
            NO_STORE,
            API_VERSION,
            (b"x-request-id", request_id),
        )
        answer = refuse(refusal, request_id, *more)
        self.service.context.metrics.requests[SURFACE, "GET", answer.status] += 1
        return refused_handshake(answer.status, answer.headers, answer.body)


def _fields(request: Request, query: str) -> HeaderFields:
    """The headers; a token in the query is added as if it had been sent as a header."""
    pairs = [(_bytes(name).lower(), _bytes(value)) for name, value in request.headers.raw_items()]
    tokens = [value for name, value in parse_qsl(query) if name == "token"]
    pairs += [(b"authorization", b"Bearer " + token.encode("utf-8", "replace")) for token in tokens]
    return HeaderFields(pairs)


def _bytes(text: str) -> bytes:
    """The bytes as sent, before `websockets` decoded them."""
    return text.encode("utf-8", "surrogateescape")
