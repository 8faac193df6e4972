"""The WebSocket handshake of deltas: authentication, limits and the register of open connections.

A refusal is an HTTP answer, before the WebSocket is open: a client of this dialect that is closed after the handshake
reconnects at once, and one whose handshake is refused backs off. The token may be in the query, because a web page
cannot set headers here; it is removed from the path before that is logged.
"""

from __future__ import annotations

import asyncio
import logging
from urllib.parse import parse_qsl

from websockets.http11 import Request, Response

from semel.contracts.deltas.refusals import Refusal, RefusedDeltas
from semel.contracts.deltas.wire.paths import split_path
from semel.contracts.fields import Fields
from semel.engine.engine import Caller
from semel.engine.queue_share import NOBODY
from semel.kernel.errors import Problem, Refused
from semel.server.admission import authenticate
from semel.server.deltas.conversation import Conversation, Visitor
from semel.server.deltas.desk import Desk
from semel.server.deltas.exchange import API_VERSION, NO_PATH, STATIC, refuse
from semel.server.deltas.faults import internal_refusal, server_refusal
from semel.server.deltas.rooms import Rooms
from semel.server.deltas.tokens import SURFACE
from semel.server.http.answer import NO_STORE
from semel.server.principals import Role
from semel.server.websocket import refused_handshake

_log = logging.getLogger("semel.deltas")

CALL = "sync/{}/ws"
"""The one path where a WebSocket of deltas is spoken."""


def is_door(raw_path: bytes) -> bool:
    """Whether a path, without its query, leads here."""
    route = split_path(raw_path)
    return route is not None and route.call == CALL


class Door:
    """Handles handshakes and keeps the register of connections; made once."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self._rooms = Rooms(desk.context.engine.signals)
        self._most = desk.settings.deltas_max_sockets

    def opened(self, conversation: Conversation, gateway: str) -> None:
        """A connection was made."""
        self.desk.journal.sockets += 1
        self._rooms.join(gateway, conversation)

    def closed(self, conversation: Conversation, gateway: str) -> None:
        """A connection has ended."""
        self.desk.journal.sockets -= 1
        self._rooms.leave(gateway, conversation)

    def fault(self) -> str:
        """Inside an exception handler: log the exception, and return the message for the client."""
        error_id = self.desk.context.world.random_bytes(8).hex()
        _log.exception("fault in a connection", extra={"error_id": error_id})
        return f"Something went wrong here; connect again. Error id {error_id}."

    def judge(self, request: Request, remote: str) -> Visitor | Response:
        """The authenticated client of a handshake, or the HTTP answer that refuses it."""
        path, _, query = request.path.partition("?")
        fields = _fields(request, query)
        try:
            return self._visitor(_bytes(path), fields, remote)
        except RefusedDeltas as refused:
            refusal = refused.refusal
        except Refused as refused:
            refusal = server_refusal(refused.problem)
        except asyncio.CancelledError:
            raise
        except Exception:  # noqa: BLE001 - whatever it is, the caller gets an answer and the log the details
            error_id = self.desk.context.world.random_bytes(8).hex()
            _log.exception("fault in a handshake", extra={"error_id": error_id})
            refusal = internal_refusal(error_id)
        return self._refusal(refusal, fields)

    def refuse(self, request: Request) -> Response:
        """The answer to a handshake that is not in order."""
        if request.method == "GET":
            refusal = Refusal("VALIDATION_ERROR", "This is no handshake of WebSocket in version 13.")
        else:
            refusal = NO_PATH
        return self._refusal(refusal, _fields(request, ""))

    def reject(self, request: Request, problem: Problem) -> Response:
        """The answer to a handshake that may not reach this surface."""
        return self._refusal(Refusal(problem.code, problem.detail), _fields(request, ""))

    def _visitor(self, path: bytes, fields: Fields, remote: str) -> Visitor:
        route = split_path(path)
        assert route is not None, "only paths of a gateway are sent here"
        where = {"path": path.decode("latin-1"), "remote_addr": remote}
        principal = authenticate(self.desk.gate, fields, lambda: where)
        actor = principal.actor if self.desk.gate.principals.are_known else NOBODY
        asked = self.desk.asked(principal, Caller(actor), where)
        self.desk.enter(asked, Role.READ, route.gateway)
        if self.desk.journal.sockets >= self._most:
            raise RefusedDeltas("BACKPRESSURE_ERROR", "Too many WebSockets are open; try again in a moment.")
        return Visitor(asked, route.gateway)

    def _refusal(self, refusal: Refusal, fields: Fields) -> Response:
        self.desk.journal.refused(refusal)
        request_id = self.desk.context.request_id(fields.get(b"x-request-id"))
        more = (
            *STATIC,
            NO_STORE,
            API_VERSION,
            (b"x-request-id", request_id),
        )
        answer = refuse(refusal, request_id, *more)
        self.desk.context.metrics.requests[SURFACE, "GET", answer.status] += 1
        return refused_handshake(answer.status, answer.headers, answer.body)


def _fields(request: Request, query: str) -> Fields:
    """The headers; a token in the query is added as if it had been sent as a header."""
    pairs = [(_bytes(name).lower(), _bytes(value)) for name, value in request.headers.raw_items()]
    tokens = [value for name, value in parse_qsl(query) if name == "token"]
    pairs += [(b"authorization", b"Bearer " + token.encode("utf-8", "replace")) for token in tokens]
    return Fields(pairs)


def _bytes(text: str) -> bytes:
    """The bytes as sent, before `websockets` decoded them."""
    return text.encode("utf-8", "surrogateescape")
