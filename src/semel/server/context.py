"""The server context: the engine, clocks, settings and principals that all surfaces share."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Any

from semel.contracts.deltas.contract import Deltas
from semel.contracts.events.contract import Events
from semel.contracts.jobs.contract import Jobs
from semel.contracts.ledger.contract import Ledger
from semel.contracts.streams.contract import Streams
from semel.engine.engine import Caller, Engine
from semel.engine.queue_share import NOBODY
from semel.kernel.world import World
from semel.server.admission import PRINCIPAL
from semel.server.asgi import Scope
from semel.server.audit import AuditLog
from semel.server.body import Bodies
from semel.server.connection import CONNECTION, Connection
from semel.server.connection_limit import ConnectionLimit
from semel.server.meter import Meter
from semel.server.metrics import Metrics
from semel.server.principals import Principals
from semel.server.settings import Settings


@dataclass(slots=True)
class Context:
    """The shared dependencies of all surfaces; made once at start."""

    settings: Settings
    engine: Engine
    world: World
    principals: Principals
    metrics: Metrics
    meter: Meter
    audit: AuditLog
    bodies: Bodies
    streams: Streams
    events: Events
    jobs: Jobs
    ledger: Ledger
    deltas: Deltas
    connection_limit: ConnectionLimit = field(default_factory=lambda: ConnectionLimit(most=1_000_000, per_address=0))
    """Shared by all listeners."""
    is_stopping: bool = False
    _prefix: bytes = b""
    _numbers: Any = field(default_factory=count)

    def request_id(self) -> bytes:
        """A name for one exchange: unique here, and cheap."""
        if not self._prefix:
            self._prefix = self.world.random_bytes(6).hex().encode()
        return b"%s-%x" % (self._prefix, next(self._numbers))


def caller_of(scope: Scope) -> Caller:
    """The caller that waits for the answer, with the share of its principal; marked as gone on disconnect."""
    caller = Caller(scope.get(PRINCIPAL, NOBODY))
    connection: Connection | None = scope.get(CONNECTION)
    if connection is not None:
        connection.on_gone = caller.leave
        caller.gone = connection.gone
    return caller
