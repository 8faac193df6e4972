"""Messages of a WebSocket on a server that logs requests: every log line of a message has the id of its handshake."""

from __future__ import annotations

from semel.server.ops.log_facts import REQUEST
from semel.server.websocket.conversation import Conversation


def log_messages(conversation: Conversation) -> None:
    """Let the code that handles a message, and the tasks that it starts, know which connection they belong to."""
    take = conversation.take

    def take_logged() -> bool:
        token = REQUEST.set(conversation.handshake)
        try:
            return take()
        finally:
            REQUEST.reset(token)

    conversation.take = take_logged  # type: ignore[method-assign]
