"""The server context: the engine, clocks, settings and principals that all surfaces share."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from semel.engine.engine import Caller, Engine
from semel.kernel.world import World
from semel.server.audit import AuditLog
from semel.server.connection_limit import ConnectionLimit
from semel.server.http.body import Bodies
from semel.server.http.request import Request
from semel.server.http.tls import Tls
from semel.server.meter import Meter
from semel.server.metrics import Metrics
from semel.server.principals import Principals
from semel.server.settings import ServerSettings

_GIVEN_ID = re.compile(rb"[ -~]{1,128}")
"""A request id that a client may give."""


@dataclass(slots=True)
class Context:
    """The shared dependencies of all surfaces; made once at start."""

    settings: ServerSettings
    engine: Engine
    world: World
    principals: Principals
    metrics: Metrics
    meter: Meter
    audit: AuditLog
    bodies: Bodies
    connection_limit: ConnectionLimit = field(default_factory=lambda: ConnectionLimit(most=1_000_000, per_address=0))
    """Shared by all listeners."""
    tls: Tls | None = None
    """The certificate that all listeners show; None without TLS."""
    is_stopping: bool = False
    _prefix: bytes = b""
    _numbers: Any = field(default_factory=count)

    def request_id(self, given: bytes | None = None) -> bytes:
        """The client's own id of an exchange, if it gave one that can be given back; else one of ours."""
        if given is not None and _GIVEN_ID.fullmatch(given):
            return given
        if not self._prefix:
            self._prefix = self.world.random_bytes(6).hex().encode()
        return b"%s-%x" % (self._prefix, next(self._numbers))


def caller_of(request: Request) -> Caller:
    """Who waits for the answer, and whose share of the queue it takes; marked as gone when the connection is lost."""
    caller = Caller(request.principal)
    request.on_gone = caller.leave
    caller.gone = request.gone
    return caller
