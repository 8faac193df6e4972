"""HTTP routes of deltas: `/v1/sync/`, `/v1/admin/` and `/v1/connectors/`, and the same without `/v1`.

Order of checks: path and method, credential, role and gateway, rate limit; then the size of the body, the body itself,
and the rules. Every answer here has the form of this dialect, those about credentials and faults too, and a method that
is not used is answered like an unknown path.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import NamedTuple

from semel.contracts.deltas.refusals import Refusal, RefusedDeltas
from semel.contracts.deltas.wire.paths import split_path
from semel.contracts.fields import Fields
from semel.engine.contract import EngineError
from semel.kernel.errors import Problem, Refused
from semel.server.admission import admit, whence
from semel.server.asgi import Header, Receive, Scope, Send, respond
from semel.server.body import CLOSE, Bodies, ClientGoneError
from semel.server.context import Context, caller_of
from semel.server.deltas.access import Asked
from semel.server.deltas.admin import Admin
from semel.server.deltas.checkpoints import Checkpoints
from semel.server.deltas.desk import Desk
from semel.server.deltas.door import Door
from semel.server.deltas.exchange import (
    API_VERSION,
    NO_PATH,
    NO_STORE,
    STATIC,
    Answer,
    Call,
    Flow,
    Request,
    refuse,
    request_id_of,
)
from semel.server.deltas.faults import engine_refusal, internal_refusal, server_refusal
from semel.server.deltas.parts import make_desk
from semel.server.deltas.pulls import Pulls
from semel.server.deltas.pushes import Pushes
from semel.server.deltas.tokens import SURFACE
from semel.server.principals import DEVELOPER, Role

_log = logging.getLogger("semel.deltas")


class _Action(NamedTuple):
    """A route's handler, and the role that it needs."""

    method: str
    role: Role | None
    """None allows every caller, without a credential."""
    call: Call
    is_paced: bool = False


class DeltasHost:
    """The HTTP interface of deltas on one listener."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.desk: Desk = make_desk(context)
        """Shared with the other wire."""
        self.door = Door(self.desk)
        """The handshake of WebSockets."""
        self._bodies = Bodies(context.settings.deltas_max_body_bytes, self.desk.uploads, skips=True)
        self._actions = _actions_of(self.desk)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        fields = Fields(scope["headers"])
        request_id = request_id_of(fields, self._context)
        try:
            answer: Answer | Flow = await self._answer(scope, fields, receive)
        except RefusedDeltas as refused:
            # What was not read of a body that is too large ends the connection.
            is_unread = isinstance(refused, _TooLargeError)
            answer = self._refuse(refused.refusal, request_id, *((CLOSE,) if is_unread else ()))
        except Refused as refused:
            answer = self._refuse(server_refusal(refused.problem), request_id, *refused.problem.headers)
        except EngineError as error:
            answer = self._refuse(engine_refusal(error), request_id)
        except (ClientGoneError, ConnectionError) as error:
            raise ClientGoneError from error
        except asyncio.CancelledError:
            raise
        except Exception:  # noqa: BLE001 - whatever it is, the caller gets an answer and the log the details
            error_id = self._context.world.random_bytes(8).hex()
            _log.exception("fault in a request", extra={"error_id": error_id})
            answer = self._refuse(internal_refusal(error_id), request_id)
        try:
            await self._send(answer, scope, request_id, send)
        finally:
            if isinstance(answer, Flow):
                answer.close()

    async def not_here(self, scope: Scope, send: Send) -> None:
        """The answer of a listener that does not serve these paths."""
        request_id = request_id_of(Fields(scope["headers"]), self._context)
        message = "This path is answered on the server's other port."
        answer = self._refuse(Refusal("NOT_FOUND", message), request_id)
        await self._send(answer, scope, request_id, send)

    async def reject(self, problem: Problem, scope: Scope, send: Send) -> None:
        """Answer a request that may not reach this surface."""
        request_id = request_id_of(Fields(scope["headers"]), self._context)
        await self._send(self._refuse(Refusal(problem.code, problem.detail), request_id), scope, request_id, send)

    async def _answer(self, scope: Scope, fields: Fields, receive: Receive) -> Answer | Flow:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        if method == "OPTIONS":
            return Answer(204, [], b"")
        route = split_path(scope["raw_path"])
        action = None if route is None else self._actions.get(route.call)
        if route is None or action is None or action.method != method:
            raise RefusedDeltas.of(NO_PATH)
        principal = DEVELOPER if action.role is None else admit(self.desk.gate, scope, fields)
        asked = self.desk.asked(principal, caller_of(scope), whence(scope))
        if action.role is not None:
            self.desk.enter(asked, action.role, route.gateway or None)
        if action.is_paced:
            self.desk.pace(asked, route.gateway)
        body = b"" if method == "GET" else await self._body(receive, scope, asked)
        is_head = scope["method"] == "HEAD"
        return await action.call(Request(asked, route.gateway, scope["query_string"], body, is_head))

    async def _body(self, receive: Receive, scope: Scope, asked: Asked) -> bytes:
        """Limit by the bytes that arrived, whatever was announced."""
        body = await self._bodies.read(receive, scope, asked.counted_as)
        if body is None:
            raise _TooLargeError(self._bodies.max_bytes)
        return body

    async def _send(self, answer: Answer | Flow, scope: Scope, request_id: bytes, send: Send) -> None:
        method: str = scope["method"]
        headers = [
            *answer.headers,
            *_static(scope["raw_path"]),
            (b"x-request-id", request_id),
        ]
        if isinstance(answer, Answer):
            self._context.metrics.requests[SURFACE, method, answer.status] += 1
            await respond(send, answer.status, headers, None if method == "HEAD" else answer.body)
            return
        self._context.metrics.requests[SURFACE, method, 200] += 1
        if method == "HEAD":
            await respond(send, 200, headers, None)
            return
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await answer.follow(send)

    def _refuse(self, refusal: Refusal, request_id: bytes, *headers: Header) -> Answer:
        self.desk.journal.refused(refusal)
        return refuse(refusal, request_id, *headers)


class _TooLargeError(RefusedDeltas):
    """The body exceeds its limit and is not read to its end."""

    def __init__(self, most: int) -> None:
        super().__init__("VALIDATION_ERROR", f"A body may have at most {most} bytes.", 413)


def _static(raw_path: bytes) -> tuple[Header, ...]:
    is_public = raw_path.removeprefix(b"/v1").startswith(b"/connectors")
    return STATIC if is_public else (*STATIC, NO_STORE, API_VERSION)


def _actions_of(desk: Desk) -> Mapping[str, _Action]:
    pushes, pulls, checkpoints, admin = Pushes(desk), Pulls(desk), Checkpoints(desk), Admin(desk)
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
        "admin/gateways": _Action("GET", Role.ADMIN, admin.gateways),
        "connectors/types": _Action("GET", None, admin.connector_types),
    }
