"""The proxy as an ASGI application: admission, routes, refusals and the access log around the middleware.

Every path belongs to the upstream. A request that matches a route goes through the middleware of `semel.once`, others
are passed on. An answer to a request with a key is sent after its receipt is stored. The access log has the method, the
path, the status and the duration, and no query and no headers. At shutdown, requests that the server cancelled get
`CUT_OFF_SECONDS` to abandon their claims.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections.abc import Callable

from semel.once.asgi import App, Message, Middleware, Receive, Scope, Send
from semel.once.claims import Act, ReceiptChange
from semel.once.errors import OnceError, OutcomeUnknown
from semel.once.exchange import REPLAYED, OnceAnswer, problem, refusal
from semel.once.functions import Once
from semel.once.http_rules import Incoming
from semel.once.identity import OnceIdentity
from semel.proxy.forward import Forward, ProxyClientGoneError, answered, nowhere
from semel.proxy.headers import is_websocket, unsendable
from semel.proxy.settings import METHODS, POLICIES, OnCrash, ProxySettings, policy_for, settings_from

CUT_OFF_SECONDS = 5.0
"""Seconds for cancelled requests to abandon their claims; after that, a claim is unknown when its lease ends."""
access_log = logging.getLogger("semel.proxy.access")
_log = logging.getLogger("semel.proxy")


class ClientStalledError(Exception):
    """The client has neither sent nor read for too long."""


class Proxy:
    """The whole proxy."""

    def __init__(self, settings: ProxySettings, store: Once, reached: Callable[[str], None] = nowhere) -> None:
        self._settings = settings
        self._forward = Forward(settings, reached)
        self._reached = reached
        self._running: set[asyncio.Task[None]] = set()
        self._by_policy: dict[OnCrash, App] = {policy: self._middleware(store, policy) for policy in POLICIES}

    def _middleware(self, store: Once, policy: OnCrash) -> App:
        settings = self._settings
        return Middleware(
            self._forward,
            store,
            scope=scope_of(settings.scope_headers) if settings.scope_headers else None,
            methods=METHODS,
            require=["/"] if settings.is_key_required else (),
            keep=settings.keep,
            lease=settings.lease,
            wait=settings.wait,
            max_body=settings.max_body,
            max_answer=settings.max_answer,
            on_crash=policy,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, or the life of the server."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        if scope["type"] == "websocket":
            await send({"type": "websocket.close"})
            return
        policy = policy_for(self._settings.routes, scope["method"], scope["path"])
        client = ProxiedClient(receive, send, self._settings.idle_timeout, self._reached if policy else nowhere)
        began = asyncio.get_running_loop().time()
        try:
            refused = refusal_of(scope) or self._full()
            if refused is not None:
                await client.answered(refused)
                return
            task = asyncio.current_task()
            assert task is not None
            self._running.add(task)
            try:
                await self._handled(scope, client, policy)
            finally:
                self._running.discard(task)
        finally:
            took_ms = (asyncio.get_running_loop().time() - began) * 1_000
            access_log.info("%s %s %s %.0f ms%s", scope["method"], shown(scope), client.outcome, took_ms, client.remark)

    async def _live(self, receive: Receive, send: Send) -> None:
        """Open the HTTP clients; close them once every request has ended."""
        await receive()
        self._forward.open()
        try:
            await send({"type": "lifespan.startup.complete"})
            await receive()
            if self._running:
                await asyncio.wait(self._running, timeout=CUT_OFF_SECONDS)
        finally:
            await self._forward.close()
        await send({"type": "lifespan.shutdown.complete"})

    def _full(self) -> OnceAnswer | None:
        if len(self._running) < self._settings.max_requests:
            return None
        detail = f"The proxy handles {self._settings.max_requests} requests already; nothing was run."
        return problem(503, "too_many_requests", detail, (b"retry-after", b"1"))

    async def _handled(self, scope: Scope, client: ProxiedClient, policy: OnCrash | None) -> None:
        """Run a request; after an answer has begun, an error closes its connection."""
        try:
            if policy is None:
                await self._forward(scope, client.receive, client.send)
            else:
                raw = {**scope, "path": scope["raw_path"].decode("ascii")}  # compare exactly what is sent
                await self._by_policy[policy](raw, client.receive, client.send)
        except ClientStalledError:
            await client.answered(problem(408, "request_timeout", "The request did not arrive in time; send it again."))
        except ProxyClientGoneError:
            pass
        except asyncio.CancelledError:
            # The proxy stops after its grace period. The claim was abandoned, so a retry gets outcome_unknown.
            detail = "The proxy is stopping: send the request again, with the same key if it has one."
            await client.answered(problem(503, "stopping", detail, (b"retry-after", b"1")))
        except OnceError as error:
            # The middleware has answered errors before the forwarding: here the request may have been sent.
            _log.warning(
                "the outcome of %s %s is unknown: %s", scope["method"], scope["raw_path"].decode(), _why(error)
            )
            await client.answered(refusal(OutcomeUnknown("")))


class EnvironmentProxy:
    """A proxy whose settings are variables of the environment, read when its server starts."""

    _proxy: Proxy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, or the life of the server, which does not start without valid settings and a store."""
        if scope["type"] != "lifespan":
            await self._proxy(scope, receive, send)
            return
        try:
            settings, place = settings_from(os.environ)
            store = Once(place)
            checked(store)
        except (ValueError, OnceError) as error:
            await receive()
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        self._proxy = Proxy(settings, store)
        try:
            await self._proxy(scope, receive, send)
        finally:
            store.close()


app = EnvironmentProxy()


def checked(store: Once) -> None:
    """Read a key from the store, so that a missing table or an unreachable store is reported before startup."""
    store.store.change(ReceiptChange(Act.FIND, OnceIdentity("", "semel-proxy")))


class ProxiedClient:
    """The client's side of one request, with its time limits."""

    def __init__(self, receive: Receive, send: Send, idle_seconds: float, reached: Callable[[str], None]) -> None:
        self._receive, self._send = receive, send
        self._idle_seconds = idle_seconds
        self._reached = reached
        self._is_read = False
        self._status = 0
        self._is_whole = False
        self.remark = ""

    @property
    def outcome(self) -> str:
        """The status, or `-` without one; with a mark if the answer was truncated."""
        return "-" if not self._status else f"{self._status}{'' if self._is_whole else ' broken off'}"

    async def receive(self) -> Message:
        """Receive from the client, with no time limit after the end of the request."""
        if self._is_read:
            return await self._receive()
        try:
            async with asyncio.timeout(self._idle_seconds):
                message = await self._receive()
        except TimeoutError:
            raise ClientStalledError from None
        self._is_read = not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        """Send a part of the answer to the client."""
        if message["type"] == "http.response.start":
            self._reached("stored")
            self._status = message["status"]
            self.remark = " replayed" if REPLAYED in message.get("headers", ()) else ""
        try:
            async with asyncio.timeout(self._idle_seconds):
                await self._send(message)
        except TimeoutError:
            raise ClientStalledError from None
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self._is_whole = True
            self._reached("answered")

    async def answered(self, answer: OnceAnswer) -> None:
        """Send an answer of the proxy itself. If an answer has begun, the server closes the connection."""
        if not self._status:
            await answered(self.send, answer)


def refusal_of(scope: Scope) -> OnceAnswer | None:
    """The answer to a request that this proxy cannot pass on."""
    if scope["method"] == "CONNECT":
        return problem(501, "not_supported", "This proxy opens no tunnels.")
    if is_websocket(scope["headers"]):
        return problem(501, "not_supported", "This proxy does not pass on WebSockets: connect to the service itself.")
    if not scope["raw_path"].startswith(b"/") or b"#" in scope["raw_path"] + scope["query_string"]:
        return problem(400, "invalid_target", "The request target must start with '/' and have no '#'.")
    name = unsendable(scope["headers"])
    return (
        problem(400, "invalid_header", f"The header {name} is not UTF-8: send it as ASCII or UTF-8.") if name else None
    )


def shown(scope: Scope) -> str:
    """The path for the log. A request target that is a whole URL is hidden: it may contain a password."""
    path: str = scope["raw_path"].decode("ascii", "backslashreplace")
    return path if path.startswith("/") else "-"


def scope_of(names: tuple[str, ...]) -> Callable[[Incoming], str | None]:
    """The scope of a caller: SHA-256 of its scope headers, or None if it has none of them."""
    wanted = [name.lower().encode() for name in names]

    def found(incoming: Incoming) -> str | None:
        values = [incoming.headers.get(name, []) for name in wanted]
        if not any(values):
            return None
        digest = hashlib.sha256()
        for listed in values:
            for value in listed:
                digest.update(b"%d:" % len(value) + value)
            digest.update(b";")
        return f"sha256:{digest.hexdigest()}"

    return found


def _why(error: BaseException) -> str:
    """The types of an error and its cause, without their texts, which may contain an address or a key."""
    cause = error.__cause__
    return type(error).__name__ if cause is None else f"{type(error).__name__} after {type(cause).__name__}"
