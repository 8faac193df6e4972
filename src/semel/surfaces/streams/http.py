"""HTTP of streams: `/v1/stream/<name>`, or `/streams/<name>`, and the lists at `/v1/streams`,
`/v1/streams/producers` and `/v1/streams/subscriptions`.

Subscriptions have the control routes under `/v1/stream/__ds` (`subscriptions/http.py`).

A request is checked by its credential, then its name, then its method. Every refusal is a problem document with the
common headers.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client.core import Metric

from semel.kernel.errors import Refusal, Refused
from semel.kernel.verdict import Verdict, Window
from semel.server.auth.authentication import admit
from semel.server.auth.principals import Principal, Role
from semel.server.context import Context
from semel.server.http.answer import JSON, NO_STORE, Answer, StreamedAnswer
from semel.server.http.problem import problem_answer
from semel.server.http.request import Request
from semel.server.settings import settings_of
from semel.server.surface import RunningSurface
from semel.surfaces.streams.commands import Retention
from semel.surfaces.streams.contract import Streams
from semel.surfaces.streams.http_reads import ALLOW, COMMON, METHODS, StreamReads
from semel.surfaces.streams.http_writes import StreamWrites
from semel.surfaces.streams.lists import SURFACE, list_producers, list_query, list_streams
from semel.surfaces.streams.metrics import StreamsMetrics
from semel.surfaces.streams.settings import StreamsSettings
from semel.surfaces.streams.subscriptions.http import SubscriptionsHttp, control_error, is_control
from semel.surfaces.streams.wire.headers import ALIAS, ROOT, name_in

PREFIXES = (ROOT, ALIAS)
LISTING = b"/v1/streams"
PRODUCERS = b"/v1/streams/producers"
SUBSCRIPTIONS = b"/v1/streams/subscriptions"
LISTS = (LISTING, PRODUCERS, SUBSCRIPTIONS)

_ROLES = {"PUT": Role.WRITE, "POST": Role.WRITE, "DELETE": Role.WRITE, "GET": Role.READ, "HEAD": Role.READ}


class StreamsHttp(RunningSurface):
    """The handlers of `/v1/stream/`, of its alias `/streams/`, and of the lists at and below `/v1/streams`."""

    surface = SURFACE
    allow = METHODS

    def __init__(self, context: Context) -> None:
        self._context = context
        settings = settings_of(context.settings, StreamsSettings)
        age, size = settings.streams_retention_age_ms, settings.streams_retention_bytes
        retention = Retention(age or None, size or None) if age or size else None
        self.contract = Streams(Window(settings.streams_idempotency_ttl_ms), retention)
        self._metrics = StreamsMetrics()
        self._writes = StreamWrites(context, self.contract, self._metrics)
        self._reads = StreamReads(context, self._metrics)
        self._subscriptions = SubscriptionsHttp(context, self._metrics)

    def common(self, request: Request) -> bytes:
        """Header lines of every answer."""
        return COMMON

    def handle(self, request: Request) -> Answer | None:
        """Answer one request."""
        if request.raw_path in LISTS:
            request.proceed(self._list(request, self._admit_listing(request)))
            return None
        if is_control(request.raw_path):
            request.proceed(self._subscriptions.handle(request))
            return None
        name = self._admit(request)
        if request.method == "POST" and self._writes.is_plain(request):
            self._writes.append_plain(name, request)
        else:
            request.proceed(self._route(name, request))
        return None

    def render(self, request: Request, refusal: Refusal) -> Answer:
        """A problem document; on control routes the form of that protocol."""
        return control_error(refusal) if is_control(request.raw_path) else problem_answer(refusal)

    def tasks(self) -> Iterable[Coroutine[Any, Any, None]]:
        """The dispatcher of subscriptions."""
        return (self._subscriptions.dispatcher.run(),)

    async def measure(self) -> None:
        """Read the gauges of subscriptions."""
        await self._subscriptions.measure()

    @property
    def replays(self) -> int:
        """Writes that were answered from their receipt."""
        return self._metrics.outcomes["replay"] + self._metrics.outcomes["duplicate"]

    @property
    def verdicts(self) -> Mapping[Verdict, int]:
        """Judged appends by verdict."""
        return self._metrics.verdicts

    def collect(self) -> Iterator[Metric]:
        """The metric families of streams."""
        return self._metrics.collect()

    def _admit(self, request: Request) -> bytes:
        """Check credential, name and method, in this order; then whether the caller may do that to this stream."""
        principal = admit(self._context, request)
        name = name_in(request.raw_path)
        role = _ROLES.get(request.method)
        if role is None:
            raise Refused("METHOD_NOT_ALLOWED", f"{request.method} is not used on streams.", headers=(ALLOW,))
        if not principal.may(role, SURFACE, name):
            raise Refused("FORBIDDEN", f"This credential may not {role.value} this stream.")
        return name

    def _admit_listing(self, request: Request) -> Principal:
        if request.method not in ("GET", "HEAD"):
            raise Refused(
                "METHOD_NOT_ALLOWED", f"{request.method} is not used here.", headers=((b"allow", b"GET, HEAD"),)
            )
        principal = admit(self._context, request)
        if not principal.has(Role.READ):
            raise Refused("FORBIDDEN", "This credential may not read streams.")
        return principal

    async def _list(self, request: Request, principal: Principal) -> Answer:
        engine, query = self._context.engine, list_query(request.query)
        if request.raw_path == LISTING:
            body = await list_streams(engine, principal, query)
        elif request.raw_path == PRODUCERS:
            body = await list_producers(engine, principal, query)
        else:
            body = await self._subscriptions.list(principal, query.raw("after"), query.limit)
        return Answer(200, [JSON, NO_STORE], body)

    async def _route(self, name: bytes, request: Request) -> Answer | StreamedAnswer:
        if request.method == "GET":
            return await self._reads.get(name, request)
        if request.method == "HEAD":
            return await self._reads.head(name, request)
        if request.method == "POST":
            return await self._writes.append(name, request)
        if request.method == "PUT":
            return await self._writes.create(name, request)
        return await self._writes.delete(name, request)
