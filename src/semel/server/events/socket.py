"""The WebSocket of events: whoever comes is talked to, and says who it is in its first message."""

from __future__ import annotations

from typing import Any

from uvicorn.config import Config
from uvicorn.server import ServerState

from semel.server.events.conversation import Conversation
from semel.server.events.hub import Hub
from semel.server.websocket import Talk, WebSocket

STRANGER_BYTES = 64 * 1024
"""The largest message of a client that has not said who it is."""


class EventSocket(WebSocket):
    """One connection."""

    def __init__(self, config: Config, server_state: ServerState, app_state: dict[str, Any]) -> None:
        self._hub: Hub = config.loaded_app.hub
        buffer_bytes = self._hub.context.settings.events_buffer_bytes
        super().__init__(server_state, self._hub.terms.limits.message_bytes, STRANGER_BYTES, buffer_bytes)

    def begin(self) -> Talk:
        """Talk as events do."""
        return Conversation(self._hub, self)
