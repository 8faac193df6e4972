"""Middleware for any ASGI application: a request with an `Idempotency-Key` takes effect once.

The answer is stored before its first byte is sent, so a client that lost it gets the same answer. A crash between the
handler's effect and the stored answer leads to `outcome_unknown`, unless the handler joined its transaction to the
request: then the answer leaves only when that transaction is over (see `request`). If the store does not answer, the
request gets 503 and is not run; `fail_open=True` runs it without a receipt.

Server-sent events are passed on as they come. Their receipt says that the request took effect, without an answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from contextvars import copy_context
from typing import Any, Unpack

from semel.once.calls import Flow
from semel.once.claims import FoundReceipt, Move, OnceClaim
from semel.once.database import wait_for
from semel.once.errors import InvalidKey, OnceError, StoreUnavailable
from semel.once.exchange import OnceAnswer, refusal
from semel.once.functions import Once
from semel.once.http_rules import LARGE_BODY, HttpOptions, HttpRules, Incoming, RefusedRequest
from semel.once.request import KeyedRequest, current
from semel.once.runs import GuardedRun, play_async, stopwatch
from semel.once.table import PATIENCE_SECONDS

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Scope = MutableMapping[str, Any]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_HELD_BACK = "http.response."
"""Extensions with this prefix are other ways to answer, which cannot be held back until the answer is stored."""


class _ClientGoneError(Exception):
    """The client disconnected before the end of its request."""


class Middleware:
    """Wraps an application; see `HttpRules` for the options."""

    def __init__(self, app: App, store: Once, **options: Unpack[HttpOptions]) -> None:
        self._app = app
        self._rules = HttpRules(store, **options)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection of the server."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        incoming = _incoming(scope)
        try:
            key = self._rules.key_of(incoming)
            if key is None:
                await self._app(scope, receive, send)
                return
            body = await _body(receive, self._rules.max_body(incoming))
            if body is None:
                raise RefusedRequest(self._rules.too_large(incoming))
        except _ClientGoneError:
            return  # nothing was run
        except RefusedRequest as refused:
            await _send(send, refused.answer)
            return
        again = _Again(body, receive)
        await self._keyed(self._claim(incoming, key, body), _without_extensions(scope), again, send)

    async def _claim(self, incoming: Incoming, key: str, body: bytes) -> OnceClaim:
        """The claim of a request. A large body is compared in a thread, because parsing it holds up the event loop."""
        rules = self._rules
        if len(body) < LARGE_BODY:
            return rules.claim(incoming, key, body)
        context = copy_context()  # the function of scope= may read a variable that an earlier middleware has set
        work = rules.once.store.database.submit(lambda: context.run(rules.claim, incoming, key, body))
        return await wait_for(work, PATIENCE_SECONDS)

    async def _keyed(self, claiming: Awaitable[OnceClaim], scope: Scope, again: _Again, send: Send) -> None:
        rules = self._rules
        try:
            claim = await claiming
            found = await play_async(rules.once.store, rules.entered(claim, stopwatch()))
        except RefusedRequest as refused:
            await _send(send, refused.answer)
        except StoreUnavailable as error:
            if rules.fail_open:
                await self._app(scope, again, send)
            else:
                await _send(send, refusal(error))
        except InvalidKey:
            raise  # a function of the options returned what is no scope: a mistake of the program
        except OnceError as error:
            await _send(send, refusal(error))
        else:
            if found.move is Move.RUN:
                await self._run(claim, found, scope, again, send)
            else:
                await _send(send, rules.stored_answer(found))

    async def _run(self, claim: OnceClaim, found: FoundReceipt, scope: Scope, again: _Again, send: Send) -> None:
        rules, request = self._rules, self._rules.request(claim)
        run = GuardedRun(
            rules.once.store, claim, lambda *_: rules.raised(request), f"{scope['method']} {scope['path']}"
        )
        taken = again.taken = _Taken(rules, request, send)
        token = current.set(request)
        refused: OnceAnswer | None = None
        try:
            run.hold(found)
            await self._app(scope, again, taken.send)
            await taken.close()
        except BaseException as error:
            if not taken.is_settled:
                await run.settle_async(error)
            refused = rules.refusal_of(request, taken.fault)
            if refused is None or taken.is_sent or not isinstance(error, Exception):
                raise
        else:
            if taken.fault is not None:  # the application took the error of `send` for its own
                await run.settle_async(taken.fault)
                refused = rules.refusal_of(request, taken.fault)
        finally:
            current.reset(token)
            run.end()
        if refused is not None:
            await _send(send, refused)


class _Taken:
    """Holds an answer back until it is stored, and until the transactions that joined the request are over.

    An answer that is too large, or a stream of events, is passed on when it is stored that it cannot be replayed.
    """

    def __init__(self, rules: HttpRules, request: KeyedRequest, send: Send) -> None:
        self._rules, self._request, self._send = rules, request, send
        self._start: Message = {}
        self._body = bytearray()
        self.is_whole = False
        """Whether the application has given its whole answer."""
        self.is_settled = False
        """Whether the fate of the key is stored."""
        self.is_sent = False
        self.fault: OnceError | None = None
        """Why it could not be stored."""

    async def send(self, message: Message) -> None:
        """Take one ASGI message of the application.

        After a fault it takes no more: an application that turns the error raised here into an answer would release the
        key, although its first answer shows that the request took effect.
        """
        if self.fault is not None:
            return
        kind = message["type"]
        if self.is_settled or kind not in ("http.response.start", "http.response.body"):
            await self._send(message)
        elif kind == "http.response.start":
            self._start = message
            self._body.clear()  # a framework may replace an answer that was held back, when its handler has failed
            if self._answer().header(b"content-type").startswith(b"text/event-stream"):
                await self._pass_on("it is a stream of events")
                self.is_sent = True
                await self._send(message)
        else:
            await self._take_body(message)

    async def _take_body(self, message: Message) -> None:
        self._body += message.get("body", b"")
        self.is_whole = not message.get("more_body", False)
        if len(self._body) > self._rules.max_answer:
            await self._pass_on(f"it has more than {self._rules.max_answer} bytes")
            await self._flush(self._answer())
        elif self.is_whole and not self._request.has_open_block:
            await self._store()

    async def close(self) -> None:
        """Store an answer that waited for the application's return: its transaction is over now, or never known."""
        if self.is_settled or self.fault is not None:
            return
        if not self.is_whole:
            raise RuntimeError("The application returned without a complete answer.")
        await self._store()

    def _answer(self) -> OnceAnswer:
        return OnceAnswer(self._start["status"], list(self._start.get("headers", ())), bytes(self._body))

    async def _store(self) -> None:
        answer = self._answer()
        await self._settle(self._rules.answered(self._request, answer))
        refused = self._rules.refusal_of(self._request, None) if answer.status >= 500 else None
        await self._flush(refused or answer)

    async def _pass_on(self, why: str) -> None:
        if self._request.has_open_block:
            raise self._rules.too_large_joined()
        await self._settle(self._rules.unstored(self._request, self._answer(), why))

    async def _settle(self, flow: Flow[None]) -> None:
        try:
            await play_async(self._rules.once.store, flow)
        except OnceError as error:
            self.fault = error
            raise
        self.is_settled = True

    async def _flush(self, answer: OnceAnswer) -> None:
        self.is_sent = True
        await self._send({**self._start, "status": answer.status, "headers": list(answer.headers)})
        await self._send({"type": "http.response.body", "body": answer.body, "more_body": not self.is_whole})
        self._body.clear()


class _Again:
    """Replays the body that was read to the application, then passes on the client's messages."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive
        self.taken: _Taken | None = None

    async def __call__(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        if self.taken is not None and self.taken.is_whole:
            # A server says so after the last piece; an application that waits for it would hold back its own answer.
            return {"type": "http.disconnect"}
        return await self._receive()


def _incoming(scope: Scope) -> Incoming:
    headers: dict[bytes, list[bytes]] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.lower(), []).append(value)
    return Incoming(scope["method"], scope["path"], scope.get("query_string", b""), headers, scope)


def _without_extensions(scope: Scope) -> Scope:
    """The scope without other ways to answer than messages that can be held back."""
    offered = scope.get("extensions") or {}
    kept = {name: facts for name, facts in offered.items() if not name.startswith(_HELD_BACK)}
    return scope if len(kept) == len(offered) else {**scope, "extensions": kept}


async def _body(receive: Receive, most: int) -> bytes | None:
    """The whole body, or None if it is too large."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _ClientGoneError
        body += message.get("body", b"")
        if len(body) > most:
            return None
        if not message.get("more_body", False):
            return bytes(body)


async def _send(send: Send, answer: OnceAnswer) -> None:
    await send({"type": "http.response.start", "status": answer.status, "headers": list(answer.headers)})
    await send({"type": "http.response.body", "body": answer.body, "more_body": False})
