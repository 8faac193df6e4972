"""The WebSocket of events: every client is accepted, and names itself in its first message."""

from __future__ import annotations

from websockets.http11 import Request, Response

from semel.kernel.errors import Problem
from semel.server.http.cors import REFUSED, Provenance
from semel.server.websocket.transport import Talk, WebSocket, refused_handshake
from semel.surfaces.events.conversation import EventConversation
from semel.surfaces.events.http_refusals import STATIC, rejection
from semel.surfaces.events.service import SOCKET_PATH, SURFACE, EventService

UNAUTHENTICATED_BYTES = 64 * 1024
"""The largest message of an unauthenticated client, in bytes."""


class EventSocket(WebSocket):
    """One WebSocket connection."""

    def __init__(self, service: EventService) -> None:
        self._service = service
        settings, most_bytes = self._service.context.settings, self._service.policy.limits.message_bytes
        super().__init__(
            most_bytes, UNAUTHENTICATED_BYTES, self._service.settings.events_buffer_bytes, settings.origin_policy
        )

    def reject(self, request: Request, problem: Problem, provenance: Provenance) -> Response:
        """A problem document, as to any other request."""
        context = self._service.context
        context.audit.note(REFUSED, {**provenance.shown, "path": SOCKET_PATH.decode(), "remote_addr": self.remote})
        status, headers, body = rejection(problem)
        context.metrics.requests[SURFACE, "GET", status] += 1
        more = (*STATIC, (b"x-request-id", context.request_id()))
        return refused_handshake(status, (*headers, *more), body)

    def begin(self) -> Talk:
        """Talk as events do."""
        return EventConversation(self._service, self)
