"""Middleware for any ASGI application: a request with an `Idempotency-Key` takes effect once.

The answer is stored before its first byte is sent, so a client that lost it gets the same answer. A crash between the
handler's effect and the stored answer leads to `outcome_unknown`, unless the handler joined its transaction to the
request (see `joined`). If the store does not answer, the request gets 503 and is not run; `fail_open=True` runs it
without a receipt.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Unpack

from semel.once.calls import failed
from semel.once.claims import Move, OnceClaim
from semel.once.errors import OnceError, StoreUnavailable
from semel.once.exchange import OnceAnswer
from semel.once.functions import Once
from semel.once.http_rules import HttpOptions, HttpRules, Incoming, RefusedRequest, refused
from semel.once.identity import request
from semel.once.runs import play_async, renewed_async, stopwatch

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Scope = MutableMapping[str, Any]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


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
        except RefusedRequest as refusal:
            await _send(send, refusal.answer)
            return
        if key is None:
            await self._app(scope, receive, send)
            return
        try:
            body = await _body(receive, self._rules.max_body)
        except ConnectionResetError:
            return  # the client disconnected before the end of its request: nothing was run
        if body is None:
            await _send(send, self._rules.too_large())
            return
        await self._keyed(self._rules.claim(incoming, key, body), scope, _Again(body, receive), send)

    async def _keyed(self, claim: OnceClaim, scope: Scope, receive: Receive, send: Send) -> None:
        rules = self._rules
        try:
            found = await play_async(rules.once.store, rules.entered(claim, stopwatch()))
        except StoreUnavailable as error:
            if rules.fail_open:
                await self._app(scope, receive, send)
            else:
                await _send(send, refused(error))
            return
        except OnceError as error:
            await _send(send, refused(error))
            return
        if found.move is not Move.RUN:
            await _send(send, rules.told(found))
            return
        await self._run(claim, scope, receive, send)

    async def _run(self, claim: OnceClaim, scope: Scope, receive: Receive, send: Send) -> None:
        rules = self._rules
        taken = _Taken(rules, claim, send)
        token = request.set(rules.joined(claim))
        try:
            async with renewed_async(rules.once.store, claim):
                await self._app(scope, receive, taken.send)
        except BaseException as error:
            if not taken.is_stored and taken.fault is None:
                await play_async(rules.once.store, failed(claim, rules.policy, error))
            if taken.fault is None or not isinstance(error, Exception):
                raise
        finally:
            request.reset(token)
            if taken.fault is not None:
                await play_async(rules.once.store, failed(claim, rules.policy, taken.fault))
        if taken.fault is not None:
            await _send(send, refused(taken.fault))


class _Taken:
    """Holds an answer back until it is stored. If it is too large, that fact is stored, and it is passed on."""

    def __init__(self, rules: HttpRules, claim: OnceClaim, send: Send) -> None:
        self._rules, self._claim, self._send = rules, claim, send
        self._start: Message = {}
        self._body = bytearray()
        self.is_stored = False
        self.fault: OnceError | None = None
        """Why the answer could not be stored."""

    async def send(self, message: Message) -> None:
        """Take one ASGI message of the application.

        After a fault it takes no more: an application that turns the error raised here into an answer would release the
        key, although its first answer shows that the request took effect.
        """
        if self.fault is not None:
            return
        if self.is_stored:
            await self._send(message)
        elif message["type"] == "http.response.start":
            self._start = message
        elif message["type"] == "http.response.body":
            self._body += message.get("body", b"")
            if len(self._body) > self._rules.max_answer:
                await self._store(is_outgrown=True)
                await self._flush(has_more=message.get("more_body", False))
            elif not message.get("more_body", False):
                await self._store(is_outgrown=False)
                await self._flush(has_more=False)

    async def _store(self, *, is_outgrown: bool) -> None:
        rules, store = self._rules, self._rules.once.store
        answer = OnceAnswer(self._start["status"], list(self._start.get("headers", ())), bytes(self._body))
        flow = rules.outgrown(self._claim, answer.status) if is_outgrown else rules.ended(self._claim, answer)
        try:
            await play_async(store, flow)
        except OnceError as error:
            self.fault = error
            raise
        self.is_stored = True

    async def _flush(self, *, has_more: bool) -> None:
        await self._send(self._start)
        await self._send({"type": "http.response.body", "body": bytes(self._body), "more_body": has_more})
        self._body.clear()


class _Again:
    """Replays the body that was read to the application, then passes on the client's messages."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


def _incoming(scope: Scope) -> Incoming:
    headers: dict[bytes, list[bytes]] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.lower(), []).append(value)
    return Incoming(scope["method"], scope["path"], scope.get("query_string", b""), headers, scope)


async def _body(receive: Receive, most: int) -> bytes | None:
    """The whole body, or None if it is too large."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionResetError
        body += message.get("body", b"")
        if len(body) > most:
            return None
        if not message.get("more_body", False):
            return bytes(body)


async def _send(send: Send, answer: OnceAnswer) -> None:
    await send({"type": "http.response.start", "status": answer.status, "headers": list(answer.headers)})
    await send({"type": "http.response.body", "body": answer.body, "more_body": False})
