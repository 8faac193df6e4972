"""Deltas over HTTP: everything under `/v1/sync/`, `/v1/admin/` and `/v1/connectors/`, and the same without `/v1`.

Order of checks: path and method, credential, role and gateway, rate limit; then the size of the body, the body itself,
and the rules. Every answer here has the shape that clients of this dialect know, including answers about credentials
and faults. An unsupported method is answered like an unknown path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from prometheus_client.core import Metric

from semel.engine.contract import EngineError
from semel.kernel.errors import Refusal, Refused
from semel.kernel.verdict import Verdict
from semel.server.auth.authentication import admit
from semel.server.auth.principals import DEVELOPER, Role
from semel.server.context import Context, caller_of
from semel.server.http.answer import CLOSE, NO_STORE, Answer, StreamedAnswer, header_block
from semel.server.http.application import UpgradedConnection
from semel.server.http.body import Bodies
from semel.server.http.request import Request as HttpRequest
from semel.server.surface import RunningSurface
from semel.server.websocket.handshake import Handshakes
from semel.surfaces.deltas.access import SURFACE, DeltaCaller
from semel.surfaces.deltas.admin import DeltaAdmin
from semel.surfaces.deltas.exchange import (
    API_VERSION,
    NO_PATH,
    STATIC,
    Call,
    DeltaRequest,
    engine_refusal,
    internal_refusal,
    own_refusal,
    refuse,
)
from semel.surfaces.deltas.row_reads import DeltaRowReads
from semel.surfaces.deltas.service import DeltaService, make_service
from semel.surfaces.deltas.socket import DeltaConnections, DeltaSocket, is_handshake_path
from semel.surfaces.deltas.sync_calls import CheckpointCalls, PullCalls, PushCalls
from semel.surfaces.deltas.wire.urls import split_path

_PUBLIC = header_block(STATIC)
_COMMON = header_block((*STATIC, NO_STORE, API_VERSION))


class _Action(NamedTuple):
    """The handler of a route, and the role that it needs."""

    method: str
    role: Role | None
    """None admits every caller, with or without a credential."""
    call: Call
    is_paced: bool = False


class DeltasHttp(RunningSurface):
    """The HTTP surface of deltas on one listener."""

    surface = SURFACE
    audits_denials = True
    allow = b"GET, HEAD, OPTIONS, POST"

    def __init__(self, context: Context) -> None:
        self._context = context
        self.service: DeltaService = make_service(context)
        """Shared with the WebSocket."""
        self.contract = self.service.deltas
        self._connections = DeltaConnections(self.service)
        self._handshakes = Handshakes(context, self)
        self._bodies = Bodies(self.service.settings.deltas_max_body_bytes, self.service.uploads, skips=True)
        self._actions = _actions_of(self.service)

    def common(self, request: HttpRequest) -> bytes:
        """Header lines of every answer; the list of connectors is public."""
        return _PUBLIC if request.raw_path.removeprefix(b"/v1").startswith(b"/connectors") else _COMMON

    def handle(self, request: HttpRequest) -> Answer | None:
        """Answer one request; None if the answer is sent later."""
        method = "GET" if request.method == "HEAD" else request.method
        route = split_path(request.raw_path)
        action = None if route is None else self._actions.get(route.call)
        if route is None or action is None or action.method != method:
            raise Refused.of(NO_PATH)
        principal = DEVELOPER if action.role is None else admit(self.service.gate, request)
        asked = self.service.asked(principal, caller_of(request), request.where)
        if action.role is not None:
            self.service.enter(asked, action.role, route.gateway or None)
        if action.is_paced:
            self.service.pace(asked, route.gateway)
        request.proceed(self._answer(action.call, asked, route.gateway, request))
        return None

    def render(self, request: HttpRequest, refusal: Refusal) -> Answer:
        """A refusal in the format of this dialect."""
        own = own_refusal(refusal)
        self.service.audit_trail.refused(own)
        return refuse(own, request.id)

    def failure(self, error: EngineError) -> Refusal:
        """The refusal for an engine error."""
        return engine_refusal(error)

    def fault(self, error_id: str) -> Refusal:
        """The refusal for an internal fault."""
        return internal_refusal(error_id)

    def socket_at(self, raw_path: bytes) -> Callable[[], UpgradedConnection] | None:
        """The WebSocket at a path; None if the path has none."""
        return partial(DeltaSocket, self._connections, self._handshakes) if is_handshake_path(raw_path) else None

    @property
    def replays(self) -> int:
        """Writes that were answered from their receipt."""
        return self.service.audit_trail.metrics.counts["duplicate"]

    @property
    def verdicts(self) -> Mapping[Verdict, int]:
        """Judged deltas, and refused calls, by verdict."""
        return self.service.audit_trail.metrics.verdicts

    def collect(self) -> Iterator[Metric]:
        """The metric families of deltas."""
        return self.service.audit_trail.metrics.collect()

    async def _answer(
        self, call: Call, asked: DeltaCaller, gateway: str, request: HttpRequest
    ) -> Answer | StreamedAnswer:
        body = b"" if request.method in ("GET", "HEAD") else await self._body(request, asked)
        return await call(DeltaRequest(asked, gateway, request.query, body, request.method == "HEAD"))

    async def _body(self, request: HttpRequest, asked: DeltaCaller) -> bytes:
        """Check the size of the received body, whatever Content-Length said."""
        body = await self._bodies.read(request, asked.counted_as)
        if body is None:
            # The rest of a body that is too large is not read, so the connection is closed.
            message = f"A body may have at most {self._bodies.max_bytes} bytes."
            raise Refused("deltas:VALIDATION_ERROR", message, own_status=413, headers=(CLOSE,))
        return body


def _actions_of(service: DeltaService) -> Mapping[str, _Action]:
    pushes, pulls, checkpoints = PushCalls(service), PullCalls(service), CheckpointCalls(service)
    admin, reads = DeltaAdmin(service), DeltaRowReads(service)
    return {
        "sync/{}/push": _Action("POST", Role.WRITE, pushes.push, is_paced=True),
        "sync/{}/pull": _Action("GET", Role.READ, pulls.pull),
        "sync/{}/checkpoint": _Action("GET", Role.READ, checkpoints.checkpoint),
        "sync/{}/actions": _Action("GET", Role.READ, pulls.actions),
        "admin/schema/{}": _Action("POST", Role.ADMIN, admin.save_schema),
        "admin/sync-rules/{}": _Action("POST", Role.ADMIN, admin.save_rules),
        "admin/flush/{}": _Action("POST", Role.ADMIN, admin.flush),
        "admin/metrics/{}": _Action("GET", Role.ADMIN, admin.metrics),
        "admin/clients/{}": _Action("GET", Role.ADMIN, admin.clients),
        "admin/forget-clients/{}": _Action("POST", Role.ADMIN, admin.forget_clients),
        "admin/tables/{}": _Action("GET", Role.ADMIN, reads.tables),
        "admin/rows/{}": _Action("GET", Role.ADMIN, reads.rows),
        "admin/entries/{}": _Action("GET", Role.ADMIN, reads.entries),
        "admin/gateways": _Action("GET", Role.ADMIN, admin.gateways),
        "connectors/types": _Action("GET", None, admin.connector_types),
    }
