"""Events over HTTP: `POST` submits, `GET` reads or follows; every refusal is a problem document."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from prometheus_client.core import Metric

from semel.engine.contract import EngineError, Write
from semel.kernel.errors import Refusal, Refused
from semel.kernel.verdict import Verdict
from semel.server.auth.authentication import admit
from semel.server.auth.principals import Principal
from semel.server.context import Context, caller_of
from semel.server.http.answer import (
    CLOSE,
    JSON,
    NO_STORE,
    Answer,
    BodyWriter,
    ClientGoneError,
    Header,
    StreamedAnswer,
    header_block,
)
from semel.server.http.application import UpgradedConnection
from semel.server.http.body import Bodies
from semel.server.http.request import Request
from semel.server.surface import RunningSurface
from semel.server.thread_pool import apart
from semel.server.websocket.handshake import Handshakes
from semel.surfaces.events.commands import EventCommitted, EventSubmitted
from semel.surfaces.events.http_reads import EventReads
from semel.surfaces.events.http_refusals import (
    EPOCH_HEADER,
    REPLAYED_HEADER,
    SINCE_HEADER,
    STATIC,
    engine_refusal,
    own_refusal,
    refuse,
)
from semel.surfaces.events.http_stream import EventStreams
from semel.surfaces.events.requests import count_results, has_denial
from semel.surfaces.events.rules.epochs import CursorReset, cursor_status
from semel.surfaces.events.service import SOCKET_PATH as PATH
from semel.surfaces.events.service import SURFACE, EventService
from semel.surfaces.events.socket import EventSocket
from semel.surfaces.events.wire.fields import refuse_unreadable
from semel.surfaces.events.wire.http_messages import (
    EventQueryString,
    EventReadRequest,
    ReadOrder,
    named_client,
    parse_body,
    submission,
)
from semel.surfaces.events.wire.message_size import answer_within
from semel.surfaces.events.wire.messages import EventIdentity, bad_request, reset_frame
from semel.surfaces.events.wire.snake_case import result_payload

__all__ = ["PATH", "EventsHttp"]

_COMMON = header_block(STATIC)
_STREAM: tuple[Header, ...] = ((b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache"))
_ANONYMOUS = "default"
_PLACES = "events are at /v1/events, one of them at /v1/events/id/, partitions at /v1/events/partitions"


class EventRequest(NamedTuple):
    """A request, its caller, its query, and the path behind the name that the call was found by."""

    principal: Principal
    query: EventQueryString
    request: Request
    rest: bytes


Methods = Mapping[str, Callable[[EventRequest], Coroutine[Any, Any, Answer | StreamedAnswer]]]
"""The calls of one path, by method."""


class EventsHttp(RunningSurface):
    """Everything at and below `/v1/events` that is not a WebSocket."""

    surface = SURFACE
    allow = b"GET, OPTIONS, POST"

    def __init__(self, context: Context) -> None:
        self._context = context
        self._service = service = EventService(context)
        self.contract = service.contract
        self._event_streams = EventStreams(context, service.feed)
        self._reads = EventReads(service)
        self._below: dict[bytes, Methods] = {b"id": {"GET": self._event}, b"partitions": {"GET": self._partitions}}
        """The calls below the path of the surface, by the name that follows it."""
        self._handshakes = Handshakes(context, self)
        self._bodies = Bodies(service.policy.limits.message_bytes, context.settings.max_uploads_bytes)

    def common(self, request: Request) -> bytes:
        """Header lines of every answer."""
        return _COMMON

    def handle(self, request: Request) -> Answer | None:
        """Answer one request."""
        if request.raw_path == PATH:
            methods: Methods = {"GET": self._read, "POST": self._submit}
            rest = b""
        else:
            name, _, rest = request.raw_path[len(PATH) + 1 :].partition(b"/")
            methods = self._below.get(name, {})
            if not methods:
                raise Refused("not_found", f"There is nothing at this path; {_PLACES}.")
        call = methods.get(request.method)
        if call is None:
            allow: Header = (b"allow", ", ".join((*methods, "OPTIONS")).encode())
            raise Refused("bad_request", f"{request.method} is not used here.", own_status=405, headers=(allow,))
        principal = admit(self._context, request)
        query = EventQueryString(request.query)
        request.proceed(call(EventRequest(principal, query, request, rest)))
        return None

    def render(self, request: Request, refusal: Refusal) -> Answer:
        """A problem document with the contract's code and details."""
        return refuse(own_refusal(refusal))

    def failure(self, error: EngineError) -> Refusal:
        """The refusal for an engine error."""
        return engine_refusal(error)

    def fault(self, error_id: str) -> Refusal:
        """The refusal for an internal fault."""
        return Refusal("server_error", f"Something went wrong here; connect again. Error id {error_id}.")

    async def _submit(self, asked: EventRequest) -> Answer:
        principal, query, request, _ = asked
        body = await self._bodies.read(request)
        if body is None:
            most = self._bodies.max_bytes
            message, facts = f"a body may have at most {most} bytes", {"max_message_bytes": most}
            raise Refused("bad_request", message, facts, own_status=413, headers=(CLOSE,))
        payload = await apart(len(body), parse_body, body)
        named = named_client(payload.members.get("client_id")) or named_client(query.one("client_id"))
        who = self._identity(principal, named)
        origin = self._service.origin()
        command = await apart(len(body), submission, payload, who, self._service.policy, origin)
        write = Write(self.contract, command, len(body), len(command.items))
        answer = await self._service.post(write, caller_of(request), origin)
        count_results(self._service.counts, answer)
        self._service.note_retries(answer, request.principal, request.remote)
        if has_denial(answer):
            self._service.denied(request.remote)
        shown = answer_within(partial(result_payload, command), answer, self._service.policy.limits)
        return Answer(200, [JSON, NO_STORE, *_replayed(answer)], shown)

    async def _event(self, asked: EventRequest) -> Answer:
        who = self._identity(asked.principal, named_client(asked.query.one("client_id")))
        return await self._reads.event(asked.principal, who, asked.rest)

    async def _partitions(self, asked: EventRequest) -> Answer:
        self._identity(asked.principal, named_client(asked.query.one("client_id")))
        if asked.request.raw_path != PATH + b"/partitions":
            raise Refused("not_found", f"There is nothing at this path; {_PLACES}.")
        return await self._reads.partitions(asked.principal, asked.query)

    async def _read(self, call: EventRequest) -> Answer | StreamedAnswer:
        principal, query, request, _ = call
        fields = request.fields
        who = self._identity(principal, named_client(query.one("client_id")))
        is_stream = b"text/event-stream" in (fields.get(b"accept") or b"").lower()
        last = fields.get(b"last-event-id") if is_stream else None
        asked = query.tail(None if last is None else last.decode("latin-1"))
        refuse_unreadable(asked.names, who)
        if not is_stream:
            return await self._reads.page(asked)
        if asked.order is not ReadOrder.FORWARDS:
            raise bad_request("an event stream is read forwards; leave order, before and last out")
        return await self._stream(principal, asked, request)

    async def _stream(self, principal: Principal, asked: EventReadRequest, request: Request) -> StreamedAnswer:
        if request.version == "1.0":
            raise bad_request("an event stream needs HTTP/1.1")
        status = await self._context.engine.read(lambda reading: cursor_status(reading, asked.since, asked.log_epoch))
        self._service.cursors.note(status, asked.since)
        if status.reset is not None:
            return StreamedAnswer([*_STREAM], partial(_send_reset, status.reset))
        request.is_live = True
        begun = await self._event_streams.begin(asked)
        told: list[Header] = [(EPOCH_HEADER, b"%d" % status.log_epoch), (SINCE_HEADER, b"%d" % begun.since)]
        seat = self._context.live_reader(request.principal)
        return StreamedAnswer([*_STREAM, *told], partial(self._follow, principal, begun, request), seat.close)

    async def _follow(
        self, principal: Principal, asked: EventReadRequest, request: Request, writer: BodyWriter
    ) -> None:
        try:
            await self._event_streams.follow(asked, principal, request, writer)
        except ClientGoneError:
            raise
        except Exception:  # noqa: BLE001 - the answer has begun: end the stream, and the client reconnects
            self._service.fault("fault in an event stream", request.log_facts())

    def socket_at(self, raw_path: bytes) -> Callable[[], UpgradedConnection] | None:
        """The factory of WebSocket connections, at the path of the surface itself."""
        return partial(EventSocket, self._service, self._handshakes) if raw_path == PATH else None

    def tasks(self) -> Iterable[Coroutine[Any, Any, None]]:
        """The live feed, which all subscribers of this node share."""
        return (self._service.feed.run(),)

    def stop(self) -> None:
        """The server is stopping: end the event streams."""
        self._event_streams.stop()

    @property
    def replays(self) -> int:
        """Writes that were answered from their receipt."""
        return self._service.counts["replayed"]

    @property
    def verdicts(self) -> Mapping[Verdict, int]:
        """Judged items by verdict."""
        return self._service.metrics.verdicts

    def collect(self) -> Iterator[Metric]:
        """The metric families of events."""
        return self._service.metrics.collect()

    def _identity(self, principal: Principal, named: str | None) -> EventIdentity:
        default = principal.client_id if self._context.principals.are_known else _ANONYMOUS
        return self._service.identity(principal, named or default)


def _replayed(answer: EventSubmitted) -> list[Header]:
    """The header with the positions of items that were committed before; bodies of retries stay equal."""
    places = [
        str(place) for place, one in enumerate(answer.results) if isinstance(one, EventCommitted) and not one.is_new
    ]
    return [(REPLAYED_HEADER, ", ".join(places).encode())] if places else []


async def _send_reset(reset: CursorReset, writer: BodyWriter) -> None:
    await writer.write(reset_frame(reset))
