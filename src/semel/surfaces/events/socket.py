"""The WebSocket of events. The handshake accepts every client; the first message authenticates it."""

from __future__ import annotations

from semel.kernel.errors import Refused
from semel.server.websocket.handshake import Handshakes
from semel.server.websocket.transport import WebSocket
from semel.surfaces.events.conversation import EventConversation
from semel.surfaces.events.service import EventService
from semel.surfaces.events.wire.messages import bad_request

UNAUTHENTICATED_BYTES = 64 * 1024
"""The largest message of an unauthenticated client, in bytes."""


class EventSocket(WebSocket):
    """One WebSocket connection."""

    def __init__(self, service: EventService, handshakes: Handshakes) -> None:
        self._service = service
        most_bytes = service.policy.limits.message_bytes
        super().__init__(handshakes, most_bytes, UNAUTHENTICATED_BYTES, service.settings.events_buffer_bytes)

    def malformed(self) -> Refused:
        """The refusal of a malformed handshake, sent as a problem document."""
        return bad_request("this is no WebSocket handshake of version 13")

    def begin(self) -> EventConversation:
        """Start the conversation."""
        return EventConversation(self._service, self)
