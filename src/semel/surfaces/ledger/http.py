"""The ledger over HTTP: everything under `/ledger/v1/`.

Order of checks: path, method, content type and size; then the API version and the credential; then path, query and
body; then the rules. Every refusal is a problem document with the codes of the ledger, including refusals about
credentials and faults.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from prometheus_client.core import Metric

from semel.engine.contract import EngineError
from semel.kernel.errors import Refusal, Refused
from semel.kernel.verdict import Verdict
from semel.server.auth.authentication import admit
from semel.server.auth.principals import presented
from semel.server.context import Context, caller_of
from semel.server.http.answer import CLOSE, NO_STORE, SECURITY, Answer, StreamedAnswer, header_block
from semel.server.http.problem import PROBLEM, problem_answer, retry_after
from semel.server.http.request import Request as HttpRequest
from semel.server.surface import ExtraListener, RunningSurface
from semel.surfaces.ledger.access import API_KEY, SURFACE
from semel.surfaces.ledger.calls import LedgerAdminCalls, LedgerBlockStream, LedgerWriteCalls
from semel.surfaces.ledger.commands import invalid
from semel.surfaces.ledger.exchange import (
    API_VERSION,
    VERSION,
    LedgerBody,
    LedgerCall,
    LedgerRequest,
    check_version,
)
from semel.surfaces.ledger.grpc_port import LedgerGrpcPort
from semel.surfaces.ledger.model import LedgerPlace
from semel.surfaces.ledger.read_calls import LedgerReadCalls
from semel.surfaces.ledger.refusals import engine_refusal, internal_refusal, own_refusal
from semel.surfaces.ledger.service import LedgerCaller, LedgerService, make_service
from semel.surfaces.ledger.term_watch import LedgerMaintenance
from semel.surfaces.ledger.wire.answers import problem_body
from semel.surfaces.ledger.wire.urls import LedgerRoute, place_in, split_path

_COMMON = header_block(
    (
        *SECURITY,
        (API_VERSION, b"%d" % VERSION),
        (b"access-control-expose-headers", b"%b, idempotency-replayed, retry-after, x-request-id" % API_VERSION),
    )
)
_NOWHERE = LedgerPlace(0)


class _LedgerRoutes(NamedTuple):
    """Handlers by method: for all organizations, one organization, a vault, and a place of either kind."""

    everywhere: Mapping[str, LedgerCall]
    org: Mapping[str, LedgerCall]
    vault: Mapping[str, LedgerCall]
    vaults: Mapping[str, LedgerCall]
    place: Mapping[tuple[str, ...], Mapping[str, LedgerCall]]


class LedgerHttp(RunningSurface):
    """The HTTP surface of the ledger on one listener."""

    surface = SURFACE
    audits_denials = True
    allow = b"DELETE, GET, HEAD, OPTIONS, PATCH, POST"

    def __init__(self, context: Context) -> None:
        self._context = context
        self.service: LedgerService = make_service(context)
        """Shared with gRPC."""
        self.contract = self.service.ledger
        self._upkeep = LedgerMaintenance(context.engine, self.contract, context.world)
        self._routes = _routes_of(self.service, self.service.node)

    def common(self, request: HttpRequest) -> bytes:
        """Header lines of every answer."""
        return _COMMON

    def handle(self, request: HttpRequest) -> Answer | None:
        """Answer one request; None if the answer is sent later."""
        route = split_path(request.raw_path)
        call = self._call(route, request.method)
        self._check_head(request)
        principal = admit(self._context, request, (API_KEY,))
        has_token = self._context.principals.are_known and presented(request.fields, (API_KEY,)) is not None
        asked = self.service.asked(principal, caller_of(request), request.where, has_token=has_token)
        assert route is not None
        request.proceed(self._answer(call, route, asked, request))
        return None

    def render(self, request: HttpRequest, refusal: Refusal) -> Answer:
        """A problem document with the ledger's code; a path of the other listener keeps the code of the server."""
        if refusal.code == "WRONG_PLANE":
            return problem_answer(refusal)
        own = own_refusal(refusal)
        self.service.audit_trail.refused(own)
        headers = [PROBLEM, NO_STORE, *own.headers]
        if own.retry_after_ms is not None:
            headers.append(retry_after(own))
        return Answer(own.status, headers, problem_body(own))

    def failure(self, error: EngineError) -> Refusal:
        """The refusal for an engine error."""
        return engine_refusal(error)

    def fault(self, error_id: str) -> Refusal:
        """The refusal for an internal fault."""
        return internal_refusal(error_id)

    async def start(self) -> None:
        """Open the term before the first request: every block of this start must carry it."""
        await self._upkeep.begin()

    def tasks(self) -> Iterable[Coroutine[Any, Any, None]]:
        """The task that raises the term when the database timeline changes."""
        return (self._upkeep.run(),)

    def listeners(self, others: Mapping[str, RunningSurface]) -> Iterable[ExtraListener]:
        """The gRPC port."""
        ledgers = {name: one.service for name, one in others.items() if isinstance(one, LedgerHttp)}
        return (LedgerGrpcPort(self._context, self.service, ledgers),)

    @property
    def replays(self) -> int:
        """Writes that were answered from their receipt."""
        return self.service.audit_trail.metrics.counts["replayed"]

    @property
    def verdicts(self) -> Mapping[Verdict, int]:
        """Judged transactions by verdict."""
        return self.service.audit_trail.metrics.verdicts

    def collect(self) -> Iterator[Metric]:
        """The metric families of the ledger."""
        return self.service.audit_trail.metrics.collect()

    async def _answer(
        self, call: LedgerCall, route: LedgerRoute, asked: LedgerCaller, request: HttpRequest
    ) -> Answer | StreamedAnswer:
        body = await self._read(request)
        place = _NOWHERE if route.org is None else place_in(route)
        return await call(LedgerRequest(asked, place, route.name, request.fields, request.query, body, request))

    async def _read(self, request: HttpRequest) -> LedgerBody:
        content = b"" if request.method in ("GET", "HEAD", "DELETE") else await self._context.bodies.read(request)
        if content is None:
            raise self._too_large()
        return LedgerBody(content)

    def _call(self, route: LedgerRoute | None, method: str) -> LedgerCall:
        """The handler of a path and method; 404 for an unknown path, 405 for a method that the path does not have."""
        calls = None if route is None else self._calls(route)
        if calls is None:
            raise Refused("ledger:not_found", "There is nothing at this path.")
        call = calls.get("GET" if method == "HEAD" else method)
        if call is None:
            allowed = ", ".join(sorted({*calls, "HEAD"} if "GET" in calls else calls))
            message = f"{method} is not used here, but {allowed}."
            raise Refused("ledger:method_not_allowed", message, headers=((b"allow", allowed.encode()),))
        return call

    def _calls(self, route: LedgerRoute) -> Mapping[str, LedgerCall] | None:
        routes = self._routes
        if route.org is None:
            return routes.everywhere
        if not route.call:
            return routes.org if route.vault is None else routes.vault
        if route.call == ("vaults",) and route.vault is None:
            return routes.vaults
        return routes.place.get(route.call)

    def _check_head(self, request: HttpRequest) -> None:
        """Refuse a request by its head, before the body is read."""
        method, fields = request.method, request.fields
        # Another site's page may send a body without a type, but needs a CORS preflight for this type.
        unsaid = b"" if fields.get(b"origin") else b"application/json"
        kind = (fields.get(b"content-type") or unsaid).partition(b";")[0].strip().lower()
        if method in ("POST", "PATCH") and kind != b"application/json":
            raise invalid("Send JSON, with the content type application/json.", "Content-Type")
        length = fields.get(b"content-length") or b"0"
        if length.isdigit() and (len(length) > 18 or int(length) > self._context.bodies.max_bytes):
            raise self._too_large()
        check_version(fields)

    def _too_large(self) -> Refused:
        message = f"A body may have at most {self._context.bodies.max_bytes} bytes."
        return Refused("ledger:invalid_argument", message, headers=(CLOSE,))


def _routes_of(service: LedgerService, node: str) -> _LedgerRoutes:
    writes, reads, live, admin = (
        LedgerWriteCalls(service),
        LedgerReadCalls(service),
        LedgerBlockStream(service),
        LedgerAdminCalls(service, node),
    )
    return _LedgerRoutes(
        everywhere={"GET": admin.list_orgs, "POST": admin.make_org},
        org={"GET": admin.show_org, "PATCH": admin.change_org, "DELETE": admin.end_org},
        vault={"GET": admin.show_vault, "PATCH": admin.change_vault, "DELETE": admin.end_vault},
        vaults={"GET": admin.list_vaults, "POST": admin.make_vault},
        place={
            ("writes",): {"POST": writes.write},
            ("batches",): {"POST": writes.batch},
            ("writes:bulk",): {"POST": writes.bulk},
            ("clients", "", "state"): {"GET": reads.client_state},
            ("entities",): {"GET": reads.entities},
            ("entities", ""): {"GET": reads.entity},
            ("entities:batchRead",): {"POST": reads.batch_read},
            ("relationships",): {"GET": reads.relationships},
            ("resources",): {"GET": reads.resources},
            ("tip",): {"GET": reads.tip},
            ("blocks",): {"GET": reads.blocks},
            ("blocks:watch",): {"GET": live.watch},
            ("blocks", ""): {"GET": reads.block},
            ("blocks", "", "proof"): {"GET": reads.proof},
            ("transactions", ""): {"GET": reads.transaction},
        },
    )
