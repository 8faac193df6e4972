"""The WebSocket of events: every client is accepted, and authenticates in its first message."""

from __future__ import annotations

from websockets.http11 import Request, Response

from semel.kernel.errors import Problem
from semel.server.events.conversation import Conversation
from semel.server.events.hub import SOCKET_PATH, SURFACE, Hub
from semel.server.events.refusals import STATIC, rejection
from semel.server.origin_policy import REFUSED, Provenance
from semel.server.websocket import Talk, WebSocket, refused_handshake

STRANGER_BYTES = 64 * 1024
"""The largest message of an unauthenticated client, in bytes."""


class EventSocket(WebSocket):
    """One WebSocket connection."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        settings, most_bytes = self._hub.context.settings, self._hub.terms.limits.message_bytes
        super().__init__(most_bytes, STRANGER_BYTES, self._hub.settings.events_buffer_bytes, settings.origin_policy)

    def reject(self, request: Request, problem: Problem, provenance: Provenance) -> Response:
        """A problem document, as to any other request."""
        context = self._hub.context
        context.audit.note(REFUSED, {**provenance.shown, "path": SOCKET_PATH.decode(), "remote_addr": self.remote})
        status, headers, body = rejection(problem)
        context.metrics.requests[SURFACE, "GET", status] += 1
        more = (*STATIC, (b"x-request-id", context.request_id()))
        return refused_handshake(status, (*headers, *more), body)

    def begin(self) -> Talk:
        """Talk as events do."""
        return Conversation(self._hub, self)
