"""Events over HTTP: `POST` submits, `GET` pages or follows; every refusal is a problem document."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator
from functools import partial
from typing import Any

from prometheus_client.core import Metric

from semel.contracts.events.reading import HistoryQuery, judged_history
from semel.contracts.events.rules.epochs import Reset, standing
from semel.contracts.events.wire.dialect import WIDEST
from semel.contracts.events.wire.fields import refuse_unreadable
from semel.contracts.events.wire.frame_size import answer_within, page_room
from semel.contracts.events.wire.http import Query, Tail, named_client, parse_body, submission
from semel.contracts.events.wire.messages import Identity, WireError, bad_request
from semel.contracts.events.wire.reset import reset_error, reset_frame
from semel.contracts.events.wire.seed import event_payload, page_payload, result_payload
from semel.engine.contract import EngineError, FaultError, OverloadedError, Write
from semel.kernel.errors import REGISTRY, Problem, Refused
from semel.server.admission import admit
from semel.server.context import Context, caller_of
from semel.server.events.hub import SOCKET_PATH as PATH
from semel.server.events.hub import SURFACE, Hub
from semel.server.events.refusals import STATIC, refusal, rejection
from semel.server.events.socket import EventSocket
from semel.server.events.submissions import count_results, has_denial
from semel.server.events.tail import Tails
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
from semel.server.principals import Principal
from semel.server.surface import RunningSurface
from semel.server.threads import apart

__all__ = ["PATH", "EventsHost"]

_ALLOW: Header = (b"allow", b"GET, POST, OPTIONS")
_COMMON = header_block(STATIC)
_STREAM: tuple[Header, ...] = ((b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache"))
_ANONYMOUS = "default"


class EventsHost(RunningSurface):
    """Everything at `/v1/events` that is not a WebSocket."""

    surface = SURFACE
    allow = b"GET, OPTIONS, POST"

    def __init__(self, context: Context) -> None:
        self._context = context
        self._hub = hub = Hub(context)
        self.contract = hub.contract
        self._tails = Tails(context, hub.feed)
        self._bodies = Bodies(hub.terms.limits.message_bytes, context.settings.max_uploads_bytes)

    def common(self, request: Request) -> bytes:
        """Header lines of every answer."""
        return _COMMON

    def handle(self, request: Request) -> Answer | None:
        """Answer one request."""
        if request.method not in ("GET", "POST"):
            answer = refusal("bad_request", f"{request.method} is not used here.", {}, 405)
            return answer._replace(headers=[*answer.headers, _ALLOW])
        principal = admit(self._context, request)
        query = Query(request.query)
        call = self._submit if request.method == "POST" else self._read
        request.later(call(principal, query, request))
        return None

    def refuse(self, request: Request, error: Exception) -> Answer | None:
        """A refusal as a problem document with the contract's code and details."""
        if isinstance(error, WireError):
            return refusal(error.code, error.message, error.details, self._status(error))
        if isinstance(error, Refused):
            return _refused(error.problem)
        return _failed(error) if isinstance(error, EngineError) else None

    def is_denial(self, error: Exception) -> bool:
        """Whether a known caller lacks the right."""
        return isinstance(error, WireError) and self._status(error) == 403

    def render(self, request: Request, problem: Problem) -> Answer:
        """What the shell refuses."""
        return rejection(problem)

    def fault(self, request: Request, error_id: str) -> Answer:
        """A fault of ours."""
        return refusal("server_error", f"Something went wrong here; connect again. Error id {error_id}.", {}, 500)

    async def _submit(self, principal: Principal, query: Query, request: Request) -> Answer:
        body = await self._bodies.read(request)
        if body is None:
            most = self._bodies.max_bytes
            answer = refusal("bad_request", f"a body may have at most {most} bytes", {"max_message_bytes": most}, 413)
            return answer._replace(headers=[*answer.headers, CLOSE])
        payload = await apart(len(body), parse_body, body)
        named = named_client(payload.members.get("client_id")) or named_client(query.one("client_id"))
        who = self._identity(principal, named)
        origin = self._hub.origin()
        command = await apart(len(body), submission, payload, who, self._hub.terms, origin)
        write = Write(self.contract, command, len(body), len(command.items))
        answer = await self._hub.post(write, caller_of(request), origin)
        count_results(self._hub.counts, answer)
        if has_denial(answer):
            self._hub.denied(request.remote)
        shown = answer_within(partial(result_payload, command), answer, self._hub.terms.limits)
        return Answer(200, [JSON, NO_STORE], shown)

    async def _read(self, principal: Principal, query: Query, request: Request) -> Answer | StreamedAnswer:
        fields = request.fields
        who = self._identity(principal, named_client(query.one("client_id")))
        is_stream = b"text/event-stream" in (fields.get(b"accept") or b"").lower()
        last = fields.get(b"last-event-id") if is_stream else None
        asked = query.tail(None if last is None else last.decode("latin-1"))
        refuse_unreadable(asked.names, who)
        if is_stream:
            return await self._stream(principal, asked, request)
        terms = self._hub.terms
        budget = page_room(len(page_payload(asked.names, WIDEST, terms)), terms.limits)
        wanted = HistoryQuery(asked.names, asked.since, asked.log_epoch, asked.to, asked.limit)
        stands, page = await self._context.engine.read(
            lambda reading: judged_history(reading, wanted, budget, event_payload)
        )
        self._hub.cursors.note(stands, asked.since)
        if stands.reset is not None:
            raise reset_error(stands.reset)
        return Answer(200, [JSON, NO_STORE], page_payload(asked.names, page, terms))

    async def _stream(self, principal: Principal, asked: Tail, request: Request) -> StreamedAnswer:
        if request.version == "1.0":
            raise bad_request("an event stream needs HTTP/1.1")
        stands = await self._context.engine.read(lambda reading: standing(reading, asked.since, asked.log_epoch))
        self._hub.cursors.note(stands, asked.since)
        if stands.reset is not None:
            return StreamedAnswer([*_STREAM], partial(_send_reset, stands.reset))
        return StreamedAnswer([*_STREAM], partial(self._follow, principal, await self._tails.begin(asked), request))

    async def _follow(self, principal: Principal, asked: Tail, request: Request, writer: BodyWriter) -> None:
        try:
            await self._tails.follow(asked, principal, request, writer)
        except ClientGoneError:
            raise
        except Exception:  # noqa: BLE001 - the answer has begun: the stream ends, and the client comes again
            self._hub.fault("fault in an event stream")

    def socket_at(self, raw_path: bytes) -> Callable[[], UpgradedConnection] | None:
        """The whole path speaks WebSocket."""
        return partial(EventSocket, self._hub)

    def tasks(self) -> Iterable[Coroutine[Any, Any, None]]:
        """The reader of the log that all live subscribers share."""
        return (self._hub.feed.run(),)

    def stop(self) -> None:
        """The server stops: event streams end."""
        self._tails.stop()

    def collect(self) -> Iterator[Metric]:
        """Its metric families."""
        return self._hub.metrics.collect()

    def _identity(self, principal: Principal, named: str | None) -> Identity:
        default = principal.client_id if self._context.principals.are_known else _ANONYMOUS
        return self._hub.identity(principal, named or default)

    def _status(self, error: WireError) -> int:
        # A known caller that uses the name of another is refused for that, not for its credential.
        is_foreign = error.code == "auth_failed" and error.closes
        return 403 if is_foreign else REGISTRY[error.code].status


async def _send_reset(reset: Reset, writer: BodyWriter) -> None:
    await writer.write(reset_frame(reset))


def _refused(problem: Problem) -> Answer:
    """A refusal by the server itself: an unknown credential, or too many uploads."""
    if problem.kind.status == 401:
        answer = refusal("auth_failed", problem.detail, {}, 401)
    else:
        answer = refusal("rate_limited", problem.detail, {"retry_after_ms": 1_000}, 503)
    return answer._replace(headers=[*answer.headers, *problem.headers])


def _failed(error: EngineError) -> Answer:
    if isinstance(error, OverloadedError):
        return refusal("rate_limited", f"{error} Try again in a moment.", {"retry_after_ms": 1_000}, 503)
    if isinstance(error, FaultError):
        message = f"Something went wrong here; repeat it with the same ids. Error id {error.error_id}."
        return refusal("server_error", message, {}, 500)
    return refusal("server_error", f"{error} Repeat it with the same ids.", {}, 503)
