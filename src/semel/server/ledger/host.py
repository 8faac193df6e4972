"""HTTP routes of the ledger: everything under `/ledger/v1/`.

Order of checks: the path, the method, content type and size; then the API version and the credential; then path,
query and body; then the rules. Every refusal here is a problem document with the ledger's own codes, those about
credentials and faults too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import NamedTuple

from semel.contracts.fields import Fields
from semel.contracts.ledger.commands import Refusal
from semel.contracts.ledger.model import Place
from semel.contracts.ledger.refusals import RefusedLedger, invalid
from semel.contracts.ledger.wire.paths import Route, place_in, split_path
from semel.engine.contract import EngineError
from semel.kernel.errors import Problem, Refused
from semel.server.admission import admit, whence
from semel.server.asgi import SECURITY, Header, Receive, Scope, Send, respond
from semel.server.body import CLOSE, ClientGoneError
from semel.server.connection import CONNECTION, Connection
from semel.server.context import Context, caller_of
from semel.server.ledger.access import API_KEY, SURFACE
from semel.server.ledger.admin import Admin
from semel.server.ledger.desk import Desk
from semel.server.ledger.exchange import Answer, Body, Call, Flow, Request, refuse
from semel.server.ledger.faults import engine_refusal, internal_refusal, server_refusal
from semel.server.ledger.live import Live
from semel.server.ledger.parts import make_desk
from semel.server.ledger.reads import Reads
from semel.server.ledger.versions import API_VERSION, VERSION, check_version
from semel.server.ledger.writes import Writes
from semel.server.principals import presented

_log = logging.getLogger("semel.ledger")

_STATIC: tuple[Header, ...] = (
    *SECURITY,
    (API_VERSION, b"%d" % VERSION),
    (b"access-control-expose-headers", b"%b, idempotency-replayed, retry-after, x-request-id" % API_VERSION),
)
_NOWHERE = Place(0)


class _RefusedHead(RefusedLedger):
    """A refusal with headers for the answer."""

    def __init__(self, code: str, message: str, *headers: Header) -> None:
        super().__init__(code, message)
        self.headers = headers


class _Routes(NamedTuple):
    """Handlers by method: for all organizations, for one, for a vault, and for a place of either kind."""

    everywhere: Mapping[str, Call]
    org: Mapping[str, Call]
    vault: Mapping[str, Call]
    vaults: Mapping[str, Call]
    place: Mapping[tuple[str, ...], Mapping[str, Call]]


class LedgerHost:
    """The HTTP interface of the ledger on one listener."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.desk: Desk = make_desk(context)
        """Shared with the other wire."""
        self._routes = _routes_of(self.desk, context.settings.ledger_node_id)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        method: str = scope["method"]
        try:
            answer = await self._answer(scope, receive)
        except RefusedLedger as refused:
            answer = self._refuse(refused.refusal, *getattr(refused, "headers", ()))
        except Refused as refused:
            answer = self._refuse(server_refusal(refused.problem), *refused.problem.headers)
        except EngineError as error:
            answer = self._refuse(engine_refusal(error))
        except (ClientGoneError, ConnectionError) as error:
            raise ClientGoneError from error
        except asyncio.CancelledError:
            raise
        except Exception:  # noqa: BLE001 - whatever it is, the caller gets an answer and the log the details
            error_id = self._context.world.random_bytes(8).hex()
            _log.exception("fault in a request", extra={"error_id": error_id})
            answer = self._refuse(internal_refusal(error_id))
        await self._send(answer, method, send)

    async def reject(self, problem: Problem, scope: Scope, send: Send) -> None:
        """Answer a request that may not reach this surface; the code is that of the problem, in small letters."""
        await self._send(self._refuse(Refusal(problem.code.lower(), problem.detail)), scope["method"], send)

    async def _send(self, answer: Answer | Flow, method: str, send: Send) -> None:
        static = (*_STATIC, (b"x-request-id", self._context.request_id()))
        if isinstance(answer, Answer):
            self._context.metrics.requests[SURFACE, method, answer.status] += 1
            await respond(send, answer.status, [*answer.headers, *static], None if method == "HEAD" else answer.body)
            return
        self._context.metrics.requests[SURFACE, method, 200] += 1
        if method == "HEAD":
            await respond(send, 200, [*answer.headers, *static], None)
            return
        await send({"type": "http.response.start", "status": 200, "headers": [*answer.headers, *static]})
        await answer.follow(send)

    def _refuse(self, refusal: Refusal, *headers: Header) -> Answer:
        self.desk.journal.refused(refusal)
        return refuse(refusal, *headers)

    async def _answer(self, scope: Scope, receive: Receive) -> Answer | Flow:
        method: str = scope["method"]
        fields = Fields(scope["headers"])
        route = split_path(scope["raw_path"])
        call = self._call(route, method)
        self._check_head(method, fields)
        principal = admit(self._context, scope, fields, (API_KEY,))
        has_token = self._context.principals.are_known and presented(fields, (API_KEY,)) is not None
        asked = self.desk.asked(principal, caller_of(scope), whence(scope), has_token=has_token)
        body = await self._read(receive, scope)
        assert route is not None
        place = _NOWHERE if route.org is None else place_in(route)
        is_old, connection = scope.get("http_version") == "1.0", scope.get(CONNECTION) or Connection()
        return await call(Request(asked, place, route.name, fields, scope["query_string"], body, is_old, connection))

    async def _read(self, receive: Receive, scope: Scope) -> Body:
        content = (
            b"" if scope["method"] in ("GET", "HEAD", "DELETE") else await self._context.bodies.read(receive, scope)
        )
        if content is None:
            raise self._too_large()
        return Body(content)

    def _call(self, route: Route | None, method: str) -> Call:
        """The call at a path; 404 without one, 405 when it has others."""
        calls = None if route is None else self._calls(route)
        if calls is None:
            raise RefusedLedger("not_found", "There is nothing at this path.")
        call = calls.get("GET" if method == "HEAD" else method)
        if call is None:
            allowed = ", ".join(sorted({*calls, "HEAD"} if "GET" in calls else calls))
            message = f"{method} is not used here, but {allowed}."
            raise _RefusedHead("method_not_allowed", message, (b"allow", allowed.encode()))
        return call

    def _calls(self, route: Route) -> Mapping[str, Call] | None:
        routes = self._routes
        if route.org is None:
            return routes.everywhere
        if not route.call:
            return routes.org if route.vault is None else routes.vault
        if route.call == ("vaults",) and route.vault is None:
            return routes.vaults
        return routes.place.get(route.call)

    def _check_head(self, method: str, fields: Fields) -> None:
        """Refuse what can be refused before the body is read."""
        # A foreign web page may send a body without a type, but not one with this type: the browser asks first.
        unsaid = b"" if fields.get(b"origin") else b"application/json"
        kind = (fields.get(b"content-type") or unsaid).partition(b";")[0].strip().lower()
        if method in ("POST", "PATCH") and kind != b"application/json":
            raise invalid("Send JSON, with the content type application/json.", "Content-Type")
        length = fields.get(b"content-length") or b"0"
        if length.isdigit() and (len(length) > 18 or int(length) > self._context.bodies.max_bytes):
            raise self._too_large()
        check_version(fields)

    def _too_large(self) -> RefusedLedger:
        message = f"A body may have at most {self._context.bodies.max_bytes} bytes."
        return _RefusedHead("invalid_argument", message, CLOSE)


def _routes_of(desk: Desk, node: str) -> _Routes:
    writes, reads, live, admin = Writes(desk), Reads(desk), Live(desk), Admin(desk, node)
    return _Routes(
        everywhere={"GET": admin.list_orgs, "POST": admin.make_org},
        org={"GET": admin.show_org, "PATCH": admin.change_org, "DELETE": admin.end_org},
        vault={"GET": admin.show_vault, "PATCH": admin.change_vault, "DELETE": admin.end_vault},
        vaults={"GET": admin.list_vaults, "POST": admin.make_vault},
        place={
            ("writes",): {"POST": writes.write},
            ("batches",): {"POST": writes.batch},
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
