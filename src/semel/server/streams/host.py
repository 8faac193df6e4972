"""HTTP routes of streams: credential first, then the method, then the request.

A plain append, whose body is there and small, goes to the engine without a task: the engine's answer is the reply.
Everything else runs as a coroutine. Every refusal is a problem document with the common headers.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from semel.contracts.streams.contract import Streams
from semel.contracts.streams.wire.names import parse_name
from semel.engine.contract import EngineError
from semel.kernel.errors import Problem, Refused
from semel.kernel.retention import Window
from semel.server.admission import admit
from semel.server.context import Context
from semel.server.http.answer import JSON, NO_STORE, Answer, StreamedAnswer
from semel.server.http.request import Request
from semel.server.principals import Principal, Role
from semel.server.problem import engine_problem, internal_problem, problem_answer
from semel.server.settings import settings_of
from semel.server.streams.headers import ALLOW, COMMON, METHODS
from semel.server.streams.listing import list_streams
from semel.server.streams.reads import Reads
from semel.server.streams.writes import Writes
from semel.server.surface import RunningSurface
from semel.surfaces.streams.metrics import StreamsMetrics
from semel.surfaces.streams.settings import StreamsSettings

PREFIX = b"/v1/stream/"
LISTING = b"/v1/streams"
SURFACE = "streams"

_ROLES = {"PUT": Role.WRITE, "POST": Role.WRITE, "DELETE": Role.WRITE, "GET": Role.READ, "HEAD": Role.READ}


class StreamForbiddenError(Refused):
    """A known caller may not do that to this stream."""


class StreamsHost(RunningSurface):
    """Everything under `/v1/stream/`, and the listing at `/v1/streams`."""

    surface = SURFACE
    allow = METHODS

    def __init__(self, context: Context) -> None:
        self._context = context
        window = Window(settings_of(context.settings, StreamsSettings).streams_idempotency_ttl_ms)
        self.contract = Streams(window)
        self._metrics = StreamsMetrics()
        self._writes = Writes(context, self.contract, self._metrics)
        self._reads = Reads(context)

    def common(self, request: Request) -> bytes:
        """Header lines of every answer."""
        return COMMON

    def handle(self, request: Request) -> Answer | None:
        """Answer one request."""
        if request.raw_path == LISTING:
            request.later(self._list(request, self._admit_listing(request)))
            return None
        name = self._admit(request)
        if request.method == "POST" and self._writes.is_plain(request):
            self._writes.append_plain(name, request)
        else:
            request.later(self._route(name, request))
        return None

    def refuse(self, request: Request, error: Exception) -> Answer | None:
        """A refusal as a problem document."""
        if isinstance(error, Refused):
            return problem_answer(error.problem)
        return problem_answer(engine_problem(error)) if isinstance(error, EngineError) else None

    def is_denial(self, error: Exception) -> bool:
        """Whether a known caller lacks the right."""
        return isinstance(error, StreamForbiddenError)

    def render(self, request: Request, problem: Problem) -> Answer:
        """What the shell refuses."""
        return problem_answer(problem)

    def fault(self, request: Request, error_id: str) -> Answer:
        """A fault of ours."""
        return problem_answer(internal_problem(error_id))

    def collect(self) -> Iterator[Metric]:
        """Its metric families."""
        return self._metrics.collect()

    def _admit(self, request: Request) -> bytes:
        """Credential, name and method, in this order; then whether this caller may do that to this stream."""
        principal = admit(self._context, request)
        name = parse_name(request.raw_path[len(PREFIX) :])
        role = _ROLES.get(request.method)
        if role is None:
            raise Refused("METHOD_NOT_ALLOWED", f"{request.method} is not used on streams.", (ALLOW,))
        if not principal.may(role, SURFACE, name):
            raise StreamForbiddenError("FORBIDDEN", f"This credential may not {role.value} this stream.")
        return name

    def _admit_listing(self, request: Request) -> Principal:
        if request.method not in ("GET", "HEAD"):
            raise Refused("METHOD_NOT_ALLOWED", f"{request.method} is not used here.", ((b"allow", b"GET, HEAD"),))
        principal = admit(self._context, request)
        if not principal.has(Role.READ):
            raise StreamForbiddenError("FORBIDDEN", "This credential may not read streams.")
        return principal

    async def _list(self, request: Request, principal: Principal) -> Answer:
        return Answer(200, [JSON, NO_STORE], await list_streams(self._context.engine, principal, request.query))

    async def _route(self, name: bytes, request: Request) -> Answer | StreamedAnswer:
        if request.method == "GET":
            return await self._reads.get(name, request)
        if request.method == "HEAD":
            return await self._reads.head(name)
        if request.method == "POST":
            return await self._writes.append(name, request)
        if request.method == "PUT":
            return await self._writes.create(name, request)
        return await self._writes.delete(name, request)
