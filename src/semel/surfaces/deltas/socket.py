"""The WebSocket of deltas: authorization in the handshake, and the register of open connections.

A refusal is sent over HTTP, before the WebSocket exists: a client of this dialect reconnects at once after a WebSocket
was opened and closed, and with growing delays after a refused handshake. The token may be in the query, because a page
in a browser cannot set headers here; it is removed before the path is stored or logged.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from urllib.parse import parse_qsl

from semel.engine.back_pressure import NO_PRINCIPAL
from semel.engine.caller import WaitingCaller
from semel.kernel.errors import Refused
from semel.kernel.header_fields import HeaderFields
from semel.server.auth.authentication import authenticate
from semel.server.auth.principals import Role
from semel.server.http.request import Request
from semel.server.ops.log_facts import KnownOrigin
from semel.server.websocket.handshake import Handshakes
from semel.server.websocket.transport import WebSocket
from semel.surfaces.deltas.conversation import AcceptedClient, DeltaConversation
from semel.surfaces.deltas.service import DeltaService
from semel.surfaces.deltas.subscribers import GatewaySubscribers
from semel.surfaces.deltas.wire.urls import split_path

_log = logging.getLogger("semel.deltas")

CALL = "sync/{}/ws"
"""The only path that accepts a WebSocket."""


def is_handshake_path(raw_path: bytes) -> bool:
    """Whether a path, without its query, is that of the WebSocket."""
    route = split_path(raw_path)
    return route is not None and route.call == CALL


class DeltaConnections:
    """Authorizes clients in their handshakes, and keeps the register of their connections; made once."""

    def __init__(self, service: DeltaService) -> None:
        self.service = service
        self._subscribers = GatewaySubscribers(service.context.engine.signals)
        self._most = service.settings.deltas_max_sockets

    def opened(self, conversation: DeltaConversation, gateway: str) -> None:
        """Register a connection."""
        self.service.audit_trail.sockets += 1
        self._subscribers.join(gateway, conversation)

    def closed(self, conversation: DeltaConversation, gateway: str) -> None:
        """Remove a connection."""
        self.service.audit_trail.sockets -= 1
        self._subscribers.leave(gateway, conversation)

    def fault(self, request: Mapping[str, str]) -> str:
        """Inside an exception handler: log the exception with the facts of the handshake, and return the message for
        the client.
        """
        error_id = self.service.context.world.random_bytes(8).hex()
        _log.exception("fault in a connection", extra={"error_id": error_id, **request})
        return f"Something went wrong here; connect again. Error id {error_id}."

    def accept(self, request: Request) -> AcceptedClient:
        """Authenticate and authorize the client of a handshake; raise the refusal otherwise."""
        route = split_path(request.raw_path)
        assert route is not None, "only paths of a gateway are sent here"
        where = request.where
        principal = authenticate(self.service.gate, _with_token(request), lambda: where)
        actor = principal.actor if self.service.gate.principals.are_known else NO_PRINCIPAL
        caller = WaitingCaller(actor)
        caller.origin = KnownOrigin(request.log_facts())
        asked = self.service.asked(principal, caller, where)
        self.service.enter(asked, Role.READ, route.gateway)
        if actor != NO_PRINCIPAL and self.service.gate.quotas.is_on:
            self.service.gate.quotas.check_socket(actor, lambda: where)
        if self.service.audit_trail.sockets >= self._most:
            raise Refused("deltas:BACKPRESSURE_ERROR", "Too many WebSockets are open; try again in a moment.")
        return AcceptedClient(asked, route.gateway)


class DeltaSocket(WebSocket):
    """One WebSocket connection."""

    def __init__(self, connections: DeltaConnections, handshakes: Handshakes) -> None:
        self._connections = connections
        settings = connections.service.settings
        most_bytes = settings.deltas_max_body_bytes + 1  # one byte for the kind of the frame
        super().__init__(handshakes, most_bytes, most_bytes, settings.deltas_live_bytes)
        self._accepted: AcceptedClient | None = None

    def malformed(self) -> Refused:
        """A refusal in the shape of this dialect."""
        return Refused("deltas:VALIDATION_ERROR", "This is no handshake of WebSocket in version 13.")

    def admit(self, request: Request) -> None:
        """Authorize the client."""
        self._accepted = self._connections.accept(request)

    def begin(self) -> DeltaConversation:
        """Start the conversation."""
        assert self._accepted is not None
        return DeltaConversation(self._connections, self._accepted, self)


def _with_token(request: Request) -> HeaderFields:
    """The headers of a request; a token in the query is added as a header."""
    # As `websockets` parses a path: bytes that are not UTF-8 are kept.
    query = request.query.decode("utf-8", "surrogateescape")
    tokens = [value for name, value in parse_qsl(query) if name == "token"]
    return HeaderFields(
        [*request.headers, *((b"authorization", b"Bearer " + token.encode("utf-8", "replace")) for token in tokens)]
    )
