"""The host of events: WebSocket connections, plain HTTP, and the feed that live readers hang on."""

from semel.server.events.host import PATH, EventsHost
from semel.server.events.socket import EventSocket

__all__ = ["PATH", "EventSocket", "EventsHost"]
