"""Events over HTTP: `POST` submits, `GET` pages or follows; every refusal is a problem document."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import orjson

from semel.contracts.events.reading import HistoryQuery, judged_history
from semel.contracts.events.rules.epochs import standing
from semel.contracts.events.wire.dialect import WIDEST
from semel.contracts.events.wire.fields import refuse_unreadable
from semel.contracts.events.wire.frame_size import answer_within, page_room
from semel.contracts.events.wire.http import Query, Tail, named_client, parse_body, submission
from semel.contracts.events.wire.messages import Identity, WireError, bad_request
from semel.contracts.events.wire.reset import reset_error, reset_frame
from semel.contracts.events.wire.seed import event_payload, page_payload, result_payload
from semel.contracts.fields import Fields
from semel.engine.contract import EngineError, FaultError, OverloadedError, Write
from semel.kernel.errors import REGISTRY, Problem, Refused
from semel.server.admission import admit, remote_address
from semel.server.asgi import SECURITY, Header, Receive, Scope, Send, respond
from semel.server.body import CLOSE, Bodies, ClientGoneError
from semel.server.context import Context, caller_of
from semel.server.events.hub import SOCKET_PATH as PATH
from semel.server.events.hub import SURFACE, Hub
from semel.server.events.submissions import count_results, has_denial
from semel.server.events.tail import Tails
from semel.server.principals import Principal
from semel.server.problem import RETRY_AFTER
from semel.server.threads import apart

__all__ = ["PATH", "EventsHost"]

_JSON: Header = (b"content-type", b"application/json")
_NO_STORE: Header = (b"cache-control", b"no-store")
_ALLOW: Header = (b"allow", b"GET, POST, OPTIONS")
STATIC: tuple[Header, ...] = (
    *SECURITY,
    (b"access-control-expose-headers", b"retry-after, x-request-id"),
)
_STREAM: tuple[Header, ...] = ((b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache"))
_ANONYMOUS = "default"


class Answer(NamedTuple):
    """A complete HTTP answer."""

    status: int
    headers: list[Header]
    body: bytes


class EventsHost:
    """The HTTP interface of events at `/v1/events`, without the WebSocket."""

    def __init__(self, context: Context, hub: Hub) -> None:
        self._context = context
        self._hub = hub
        self._tails = Tails(context, hub.feed)
        self._bodies = Bodies(hub.terms.limits.message_bytes, context.settings.max_uploads_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        method: str = scope["method"]
        try:
            answer = await self._route(method, scope, receive, send)
        except WireError as error:
            if self._status(error) == 403:
                self._hub.denied(remote_address(scope))
            answer = refusal(error.code, error.message, error.details, self._status(error))
        except Refused as refused:
            answer = _refused(refused.problem)
        except EngineError as error:
            answer = _failed(error)
        except (ClientGoneError, asyncio.CancelledError):
            raise
        except Exception:  # noqa: BLE001 - whatever it is, the caller gets an answer and the log the details
            answer = refusal("server_error", self._hub.fault("fault in a request"), {}, 500)
        if answer is not None:
            await self._send(answer, method, send)

    async def reject(self, problem: Problem, scope: Scope, send: Send) -> None:
        """Answer a request that may not reach this surface."""
        await self._send(rejection(problem), scope["method"], send)

    async def _send(self, answer: Answer, method: str, send: Send) -> None:
        self._context.metrics.requests[SURFACE, method, answer.status] += 1
        headers = [*answer.headers, *STATIC, (b"x-request-id", self._context.request_id())]
        await respond(send, answer.status, headers, None if method == "HEAD" else answer.body)

    async def _route(self, method: str, scope: Scope, receive: Receive, send: Send) -> Answer | None:
        if method == "OPTIONS":
            return Answer(204, [_ALLOW], b"")
        if method not in ("GET", "POST"):
            answer = refusal("bad_request", f"{method} is not used here.", {}, 405)
            return answer._replace(headers=[*answer.headers, _ALLOW])
        fields = Fields(scope["headers"])
        principal = admit(self._context, scope, fields)
        query = Query(scope["query_string"])
        if method == "POST":
            return await self._submit(principal, query, scope, receive)
        return await self._read(principal, query, fields, scope, send)

    async def _submit(self, principal: Principal, query: Query, scope: Scope, receive: Receive) -> Answer:
        body = await self._bodies.read(receive, scope)
        if body is None:
            most = self._bodies.max_bytes
            answer = refusal("bad_request", f"a body may have at most {most} bytes", {"max_message_bytes": most}, 413)
            return answer._replace(headers=[*answer.headers, CLOSE])
        payload = await apart(len(body), parse_body, body)
        named = named_client(payload.members.get("client_id")) or named_client(query.one("client_id"))
        who = self._identity(principal, named)
        origin = self._hub.origin()
        command = await apart(len(body), submission, payload, who, self._hub.terms, origin)
        write = Write(self._context.events, command, len(body), len(command.items))
        answer = await self._hub.post(write, caller_of(scope), origin)
        count_results(self._hub.counts, answer)
        if has_denial(answer):
            self._hub.denied(remote_address(scope))
        shown = answer_within(partial(result_payload, command), answer, self._hub.terms.limits)
        return Answer(200, [_JSON, _NO_STORE], shown)

    async def _read(
        self, principal: Principal, query: Query, fields: Fields, scope: Scope, send: Send
    ) -> Answer | None:
        who = self._identity(principal, named_client(query.one("client_id")))
        is_stream = b"text/event-stream" in (fields.get(b"accept") or b"").lower()
        last = fields.get(b"last-event-id") if is_stream else None
        asked = query.tail(None if last is None else last.decode("latin-1"))
        refuse_unreadable(asked.names, who)
        if is_stream:
            await self._stream(principal, asked, scope, send)
            return None
        terms = self._hub.terms
        budget = page_room(len(page_payload(asked.names, WIDEST, terms)), terms.limits)
        wanted = HistoryQuery(asked.names, asked.since, asked.log_epoch, asked.to, asked.limit)
        stands, page = await self._context.engine.read(
            lambda reading: judged_history(reading, wanted, budget, event_payload)
        )
        self._hub.cursors.note(stands, asked.since)
        if stands.reset is not None:
            raise reset_error(stands.reset)
        return Answer(200, [_JSON, _NO_STORE], page_payload(asked.names, page, terms))

    async def _stream(self, principal: Principal, asked: Tail, scope: Scope, send: Send) -> None:
        if scope.get("http_version") == "1.0":
            raise bad_request("an event stream needs HTTP/1.1")
        stands = await self._context.engine.read(lambda reading: standing(reading, asked.since, asked.log_epoch))
        self._hub.cursors.note(stands, asked.since)
        asked = await self._tails.begin(asked)
        headers = [*_STREAM, *STATIC, (b"x-request-id", self._context.request_id())]
        self._context.metrics.requests[SURFACE, "GET", 200] += 1
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if stands.reset is not None:
            await send({"type": "http.response.body", "body": reset_frame(stands.reset)})
            return
        try:
            await self._tails.follow(asked, principal, scope, send)
        except Exception:  # noqa: BLE001 - the answer has begun: the stream ends, and the client comes again
            self._hub.fault("fault in an event stream")

    def stop(self) -> None:
        """The server stops: event streams end."""
        self._tails.stop()

    def _identity(self, principal: Principal, named: str | None) -> Identity:
        default = principal.client_id if self._context.principals.are_known else _ANONYMOUS
        return self._hub.identity(principal, named or default)

    def _status(self, error: WireError) -> int:
        # A known caller that uses the name of another is refused for that, not for its credential.
        is_foreign = error.code == "auth_failed" and error.closes
        return 403 if is_foreign else REGISTRY[error.code].status


def refusal(code: str, message: str, details: Mapping[str, Any], status: int) -> Answer:
    """A problem document with the contract's code and details."""
    kind = REGISTRY[code]
    body = orjson.dumps(
        {
            "type": kind.type,
            "title": kind.title,
            "status": status,
            "code": code,
            "detail": message,
            "details": dict(details),
            "retry": kind.retry.value,
        }
    )
    headers: list[Header] = [(b"content-type", b"application/problem+json"), _NO_STORE]
    if status in (429, 503):
        headers.append(RETRY_AFTER)
    return Answer(status, headers, body)


def rejection(problem: Problem) -> Answer:
    """A problem that the server raises before this surface is called, in the form of this surface."""
    return refusal(problem.code, problem.detail, {}, problem.kind.status)


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
