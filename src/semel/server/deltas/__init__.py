"""Deltas on the server's listeners: the desk that every wire comes to, and the paths over HTTP."""

from semel.contracts.deltas.wire.paths import is_of_deltas
from semel.server.deltas.door import is_door
from semel.server.deltas.host import DeltasHost
from semel.server.deltas.socket import DeltaSocket

__all__ = ["DeltaSocket", "DeltasHost", "is_door", "is_of_deltas"]
