"""The ASGI application: routes a request by its raw path prefix to a surface."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

import orjson

from semel.kernel.errors import Problem
from semel.server.admission import whence
from semel.server.asgi import SECURITY, Message, Receive, Scope, Send, respond
from semel.server.body import ClientGoneError
from semel.server.context import Context
from semel.server.deltas import DeltasHost, DeltaSocket, is_door, is_of_deltas
from semel.server.events import PATH as EVENTS
from semel.server.events import EventsHost, EventSocket
from semel.server.events.hub import Hub
from semel.server.jobs import JobsHost
from semel.server.ledger import PREFIX as LEDGER
from semel.server.ledger import LedgerHost
from semel.server.operations import Operations
from semel.server.origin_policy import REFUSED, Provenance, preflight_headers, provenance_in, shared_with
from semel.server.planes import Place, Plane, is_of_jobs, place_of
from semel.server.problem import internal_problem, problem_body, problem_headers
from semel.server.streams import PREFIX as STREAMS
from semel.server.streams import StreamsHost
from semel.server.websocket import WebSocket

_log = logging.getLogger("semel.server")

_NOTHING_HERE = Problem(
    "NOT_FOUND",
    "There is nothing at this path; streams are under /v1/stream/, events at /v1/events, jobs at /v1/jobs, the ledger "
    "is under /ledger/v1/, and deltas are under /v1/sync/.",
)


class Host(Protocol):
    """The HTTP interface of a surface."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

    async def reject(self, problem: Problem, scope: Scope, send: Send) -> None:
        """Answer a request that may not reach the surface, in its own shape."""


_ELSEWHERE = Problem("WRONG_PLANE", "This path is answered on the server's other port.")


class App:
    """The ASGI application, on one listener or on two."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._policy = context.settings.origin_policy
        self.control_port = 0
        """The port of the control listener; 0 without one."""
        self.hub = Hub(context)
        self._streams = StreamsHost(context)
        self._events = EventsHost(context, self.hub)
        self.jobs = JobsHost(context)
        self.ledger = LedgerHost(context)
        self.deltas = DeltasHost(context)
        self._operations = Operations(context)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; what goes wrong unexpectedly is a 500 with an id that the log can be searched for."""
        if scope["type"] != "http":
            return
        try:
            provenance = provenance_in(scope["headers"])
            foreign = self._policy.refusal(provenance)
            if foreign is not None:
                await self._reject(foreign, provenance, scope, send)
            elif provenance.origin is None:
                await self._answer(scope, receive, send)
            else:
                await self._answer_page(provenance, scope, receive, send)
        except (ClientGoneError, asyncio.CancelledError):
            return
        except Exception:  # noqa: BLE001 - whatever it is, the caller gets an answer and the log the details
            error_id = self._context.world.random_bytes(8).hex()
            _log.exception("fault in a request", extra={"error_id": error_id})
            await self._refuse(internal_problem(error_id), scope["method"], send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.control_port and not await self._is_here(scope, send):
            return
        host = self._host_of(scope["raw_path"])
        if host is not None:
            await host(scope, receive, send)
        elif not await self._operations(scope, send):
            await self._refuse(_NOTHING_HERE, scope["method"], send)

    async def _answer_page(self, provenance: Provenance, scope: Scope, receive: Receive, send: Send) -> None:
        """The same for a web page that may call: adds CORS headers, and answers preflights."""
        assert provenance.origin is not None
        shared = shared_with(provenance.origin)

        async def send_shared(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], shared]
            await send(message)

        if scope["method"] != "OPTIONS" or not provenance.is_preflight:
            await self._answer(scope, receive, send_shared)
            return
        self._context.metrics.requests["server", "OPTIONS", 204] += 1
        headers = [*preflight_headers(provenance), *SECURITY, (b"x-request-id", self._context.request_id())]
        await respond(send_shared, 204, headers, b"")

    async def _reject(self, problem: Problem, provenance: Provenance, scope: Scope, send: Send) -> None:
        """Refuse a request as the owner of its path refuses."""
        self._context.audit.note(REFUSED, {**provenance.shown, **whence(scope)})
        host = self._host_of(scope["raw_path"])
        if host is None:
            await self._refuse(problem, scope["method"], send)
        else:
            await host.reject(problem, scope, send)

    def _host_of(self, raw_path: bytes) -> Host | None:
        """The surface that a path belongs to."""
        if raw_path.startswith(STREAMS):
            return self._streams
        if raw_path == EVENTS:
            return self._events
        if is_of_jobs(raw_path):
            return self.jobs
        if raw_path.startswith(LEDGER) or raw_path == LEDGER[:-1]:
            return self.ledger
        return self.deltas if is_of_deltas(raw_path) else None

    async def _is_here(self, scope: Scope, send: Send) -> bool:
        """Whether this listener serves the path; if not, the request is refused and written to the audit log."""
        listener = Plane.CONTROL if self.is_control(scope["server"]) else Plane.DATA
        place = place_of(scope["raw_path"], listener)
        if place is Place.NOWHERE:
            await self._refuse(_NOTHING_HERE, scope["method"], send)
        elif place is Place.ELSEWHERE:
            self._context.audit.note("PORT_MISMATCH", whence(scope))
            await self._refuse_elsewhere(scope, send)
        return place is Place.HERE

    async def _refuse_elsewhere(self, scope: Scope, send: Send) -> None:
        if is_of_deltas(scope["raw_path"]):
            await self.deltas.not_here(scope, send)
            return
        if not is_of_jobs(scope["raw_path"]):
            await self._refuse(_ELSEWHERE, scope["method"], send)
            return
        status = _ELSEWHERE.kind.status
        self._context.metrics.requests["none", scope["method"], status] += 1
        body = orjson.dumps({"ok": False, "error": "wrong_plane", "message": _ELSEWHERE.detail})
        headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store"), *SECURITY]
        headers.append((b"x-request-id", self._context.request_id()))
        await respond(send, status, headers, None if scope["method"] == "HEAD" else body)

    def socket_at(self, raw_path: bytes) -> type[WebSocket] | None:
        """The WebSocket handler of a path; None where there is none."""
        if raw_path == EVENTS:
            return EventSocket
        return DeltaSocket if is_of_deltas(raw_path) and is_door(raw_path) else None

    def is_control(self, address: tuple[str, int] | None) -> bool:
        """Whether a local address is that of the control listener."""
        return self.control_port != 0 and address is not None and address[1] == self.control_port

    async def _refuse(self, problem: Problem, method: str, send: Send) -> None:
        status = problem.kind.status
        self._context.metrics.requests["none", method, status] += 1
        headers = [*problem_headers(problem), *SECURITY, (b"x-request-id", self._context.request_id())]
        await respond(send, status, headers, None if method == "HEAD" else problem_body(problem))

    def stop(self) -> None:
        """The server stops: live readers that hang on no signal end."""
        self._events.stop()
        self.jobs.stop()

    def refused(self, problem: Problem) -> None:
        """The protocol has refused input that never became a request."""
        self._context.metrics.requests["none", "-", problem.kind.status] += 1
