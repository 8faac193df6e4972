"""Events on the server: WebSocket connections, HTTP, and the live feed of subscribers."""

from semel.server.events.host import PATH, EventsHost
from semel.server.events.socket import EventSocket

__all__ = ["PATH", "EventSocket", "EventsHost"]
