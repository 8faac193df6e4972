"""Events over HTTP: `POST` submits, `GET` pages or follows; every refusal is a problem document."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator
from functools import partial
from typing import Any

from prometheus_client.core import Metric

from semel.engine.contract import EngineError, Write
from semel.kernel.errors import Refusal, Refused
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
from semel.surfaces.events.http_refusals import STATIC, engine_refusal, own_refusal, refuse
from semel.surfaces.events.http_stream import EventStreams
from semel.surfaces.events.reading import HistoryQuery, checked_history
from semel.surfaces.events.requests import count_results, has_denial
from semel.surfaces.events.rules.epochs import CursorReset, cursor_status
from semel.surfaces.events.service import SOCKET_PATH as PATH
from semel.surfaces.events.service import SURFACE, EventService
from semel.surfaces.events.socket import EventSocket
from semel.surfaces.events.wire.dialect import WIDEST_PAGE
from semel.surfaces.events.wire.fields import refuse_unreadable
from semel.surfaces.events.wire.http_messages import (
    EventQueryString,
    EventReadRequest,
    named_client,
    parse_body,
    submission,
)
from semel.surfaces.events.wire.message_size import answer_within, page_budget
from semel.surfaces.events.wire.messages import EventIdentity, bad_request, reset_error, reset_frame
from semel.surfaces.events.wire.snake_case import event_payload, page_payload, result_payload

__all__ = ["PATH", "EventsHttp"]

_ALLOW: Header = (b"allow", b"GET, POST, OPTIONS")
_COMMON = header_block(STATIC)
_STREAM: tuple[Header, ...] = ((b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache"))
_ANONYMOUS = "default"


class EventsHttp(RunningSurface):
    """Everything at `/v1/events` that is not a WebSocket."""

    surface = SURFACE
    allow = b"GET, OPTIONS, POST"

    def __init__(self, context: Context) -> None:
        self._context = context
        self._service = service = EventService(context)
        self.contract = service.contract
        self._event_streams = EventStreams(context, service.feed)
        self._handshakes = Handshakes(context, self)
        self._bodies = Bodies(service.policy.limits.message_bytes, context.settings.max_uploads_bytes)

    def common(self, request: Request) -> bytes:
        """Header lines of every answer."""
        return _COMMON

    def handle(self, request: Request) -> Answer | None:
        """Answer one request."""
        if request.method not in ("GET", "POST"):
            message = f"{request.method} is not used here."
            raise Refused("bad_request", message, own_status=405, headers=(_ALLOW,))
        principal = admit(self._context, request)
        query = EventQueryString(request.query)
        call = self._submit if request.method == "POST" else self._read
        request.proceed(call(principal, query, request))
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

    async def _submit(self, principal: Principal, query: EventQueryString, request: Request) -> Answer:
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
        if has_denial(answer):
            self._service.denied(request.remote)
        shown = answer_within(partial(result_payload, command), answer, self._service.policy.limits)
        return Answer(200, [JSON, NO_STORE], shown)

    async def _read(self, principal: Principal, query: EventQueryString, request: Request) -> Answer | StreamedAnswer:
        fields = request.fields
        who = self._identity(principal, named_client(query.one("client_id")))
        is_stream = b"text/event-stream" in (fields.get(b"accept") or b"").lower()
        last = fields.get(b"last-event-id") if is_stream else None
        asked = query.tail(None if last is None else last.decode("latin-1"))
        refuse_unreadable(asked.names, who)
        if is_stream:
            return await self._stream(principal, asked, request)
        policy = self._service.policy
        budget = page_budget(len(page_payload(asked.names, WIDEST_PAGE, policy)), policy.limits)
        wanted = HistoryQuery(asked.names, asked.since, asked.log_epoch, asked.to, asked.limit)
        status, page = await self._context.engine.read(
            lambda reading: checked_history(reading, wanted, budget, event_payload)
        )
        self._service.cursors.note(status, asked.since)
        if status.reset is not None:
            raise reset_error(status.reset)
        return Answer(200, [JSON, NO_STORE], page_payload(asked.names, page, policy))

    async def _stream(self, principal: Principal, asked: EventReadRequest, request: Request) -> StreamedAnswer:
        if request.version == "1.0":
            raise bad_request("an event stream needs HTTP/1.1")
        status = await self._context.engine.read(lambda reading: cursor_status(reading, asked.since, asked.log_epoch))
        self._service.cursors.note(status, asked.since)
        if status.reset is not None:
            return StreamedAnswer([*_STREAM], partial(_send_reset, status.reset))
        return StreamedAnswer(
            [*_STREAM], partial(self._follow, principal, await self._event_streams.begin(asked), request)
        )

    async def _follow(
        self, principal: Principal, asked: EventReadRequest, request: Request, writer: BodyWriter
    ) -> None:
        try:
            await self._event_streams.follow(asked, principal, request, writer)
        except ClientGoneError:
            raise
        except Exception:  # noqa: BLE001 - the answer has begun: end the stream, and the client reconnects
            self._service.fault("fault in an event stream")

    def socket_at(self, raw_path: bytes) -> Callable[[], UpgradedConnection] | None:
        """The factory of WebSocket connections: every path of events accepts them."""
        return partial(EventSocket, self._service, self._handshakes)

    def tasks(self) -> Iterable[Coroutine[Any, Any, None]]:
        """The live feed, which all subscribers of this node share."""
        return (self._service.feed.run(),)

    def stop(self) -> None:
        """The server is stopping: end the event streams."""
        self._event_streams.stop()

    def collect(self) -> Iterator[Metric]:
        """The metric families of events."""
        return self._service.metrics.collect()

    def _identity(self, principal: Principal, named: str | None) -> EventIdentity:
        default = principal.client_id if self._context.principals.are_known else _ANONYMOUS
        return self._service.identity(principal, named or default)


async def _send_reset(reset: CursorReset, writer: BodyWriter) -> None:
    await writer.write(reset_frame(reset))
