"""Deltas on the server: the service behind all transports, HTTP paths and WebSocket."""

from semel.contracts.deltas.wire.paths import is_of_deltas
from semel.server.deltas.door import is_door
from semel.server.deltas.host import DeltasHost
from semel.server.deltas.socket import DeltaSocket

__all__ = ["DeltaSocket", "DeltasHost", "is_door", "is_of_deltas"]
