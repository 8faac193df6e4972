"""The gRPC server: it checks the head of a call, reads its message, runs its method and ends it with a status.

Order of checks: path; the service's own check of the head, compression and deadline; the credential; then the message.
A caller is therefore rejected before its message has arrived, or after the beginning of it. The server runs on the
event loop of the HTTP server, on its own port. It knows no surface: a `GrpcService` has the methods and the rules.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Protocol

from semel.kernel.clock import World
from semel.kernel.errors import Grpc
from semel.server.grpc.call import GrpcCall, GrpcMethod, GrpcService
from semel.server.grpc.connection import GrpcConnection
from semel.server.grpc.messages import FramedMessage, unpack, unpacked_size
from semel.server.grpc.metadata import (
    NAMESPACE,
    GrpcError,
    check_encoding,
    check_namespace,
    http_refusal,
    no_method,
    seconds_left,
    trace_id,
    unindexed,
)
from semel.server.http.connection_limit import ConnectionLimit
from semel.server.quotas.accounts import QuotaExceededError
from semel.server.thread_pool import apart

MAX_CONNECTIONS = 10_000
MAX_CALLS = 20_000
MAX_OPEN_CALLS = 1_000
"""Limit on calls that need no credential; they are counted apart from the others, and a new one ends the oldest."""
MAX_OPEN_CALLS_EACH = 16
"""The same limit for one connection."""
CHECK_SECONDS = 5.0
LAST_WORDS_SECONDS = 1.0
"""Seconds at shutdown for answers that are being sent."""
ANSWERS_SHARE = 2
"""Unread answers may take 1/ANSWERS_SHARE of the memory for requests and answers."""
BACKLOG = 4_096
HANDSHAKE_SECONDS = 10.0
"""Limit on the TLS handshake, in seconds."""
_OVERLOADED = "Too many calls are in progress; try again in a moment."
_MANY_OPEN = "Too many calls without a credential are in progress on this connection."
_OVERFULL = "Too many requests are being read; try again in a moment."
_STOPPING = "The server is stopping; send the same request again."


class GrpcProcess(Protocol):
    """What the server needs of its process; the context of the server implements it."""

    @property
    def world(self) -> World:
        """The source of random trace ids."""

    @property
    def connection_limit(self) -> ConnectionLimit:
        """The limit that all listeners share."""

    @property
    def is_stopping(self) -> bool:
        """Whether the process is stopping: then no call is started."""

    def request_id(self, given: bytes | None = None) -> bytes:
        """The id that the client sent, if it is valid; otherwise a new one."""


class GrpcServer:
    """One listener."""

    def __init__(
        self, process: GrpcProcess, service: GrpcService, namespaces: Mapping[bytes, GrpcService] | None = None
    ) -> None:
        """`service` is that of the default namespace; `namespaces` has those of the others by name."""
        self._process = process
        self.service = service
        self._namespaces = namespaces or {}
        self._held = 0
        self._unsent = 0
        self._calls = 0
        self._open_calls: dict[GrpcCall, None] = {}
        """In order of arrival."""
        self._change = asyncio.Event()
        self.connections: set[GrpcConnection] = set()
        self._server: asyncio.Server | None = None
        self._chore: asyncio.Task[None] | None = None

    # ---- The listener ----

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        """Listen; `OSError` if the address is not available. With a TLS context every connection uses TLS."""
        loop = asyncio.get_running_loop()
        make = partial(GrpcConnection, self, loop)
        is_reused = sys.platform != "win32" or None
        timeout = None if tls is None else HANDSHAKE_SECONDS
        self._server = await loop.create_server(
            make, host, port, backlog=BACKLOG, reuse_address=is_reused, ssl=tls, ssl_handshake_timeout=timeout
        )
        self._chore = loop.create_task(self._check())

    @property
    def port(self) -> int:
        """The port on which it listens."""
        assert self._server is not None
        address: tuple[str, int] = self._server.sockets[0].getsockname()
        return address[1]

    async def stop(self, grace: float) -> None:
        """Accept nothing new, let running calls end within the time limit, then abort the rest."""
        if self._server is None or self._chore is None:
            return
        self._server.close()
        self._chore.cancel()
        for connection in list(self.connections):
            connection.retire()
        await self._until(lambda: not self._calls, grace)
        tasks = [call.task for one in self.connections for call in one.calls.values() if call.task is not None]
        for end in (GrpcConnection.close, GrpcConnection.abort):
            for connection in list(self.connections):
                end(connection)
            await self._until(lambda: not self.connections, LAST_WORDS_SECONDS)
        await asyncio.gather(*tasks, self._chore, return_exceptions=True)
        self._server = None

    async def _until(self, is_so: Callable[[], bool], seconds: float) -> None:
        """Wait for a condition that the end of a call or a connection may meet, up to the time limit."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not is_so():
                    self._change.clear()
                    await self._change.wait()

    async def _check(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            for connection in list(self.connections):
                connection.check(loop.time())

    # ---- Calls from connections ----

    def arrive(self, connection: GrpcConnection) -> bool:
        """Register a new connection; False if the limit is reached."""
        if len(self.connections) >= MAX_CONNECTIONS:
            return False
        now, limit = asyncio.get_running_loop().time(), self._process.connection_limit
        if limit.refusal(connection.peer, 0, connection.descriptor, now) is not None:
            return False
        self.connections.add(connection)
        return True

    def depart(self, connection: GrpcConnection) -> None:
        """Remove a closed connection."""
        if connection in self.connections:
            self.connections.discard(connection)
            self._process.connection_limit.leave(connection.peer)
        self._change.set()

    def hold(self, size: int) -> bool:
        """Count `size` more bytes of requests in memory (fewer, if negative); False if all together exceed the
        limit.
        """
        self._held += size
        return self._held + self._unsent <= self.service.max_held_bytes

    def hold_answer(self, size: int) -> bool:
        """As `hold`, for answers that the client has not read yet; they leave a share to the requests."""
        self._unsent += size
        most = self.service.max_held_bytes
        return self._unsent <= most // ANSWERS_SHARE and self._held + self._unsent <= most

    def count(self, call: GrpcCall, number: int) -> None:
        """Count a call that has ended."""
        self._calls -= 1
        self._open_calls.pop(call, None)
        call.service.count(call, number)
        self._change.set()

    def service_of(self, call: GrpcCall) -> GrpcService:
        """The service of the namespace that a call names; that of the default one for an unknown name."""
        return self._namespaces.get(call.fields.get(NAMESPACE) or b"", self.service)

    def open(self, call: GrpcCall) -> None:
        """Check the head of a call."""
        self._calls += 1
        call.service = self.service_of(call)
        call.request_id = self._process.request_id(call.fields.get(b"x-request-id"))
        not_grpc = http_refusal(call.fields)
        if not_grpc is not None:
            call.reject(not_grpc)
            return
        trace = trace_id(call.fields) or self._process.world.random_bytes(16).hex().encode()
        call.head = [
            *call.service.headers,
            unindexed(b"x-request-id", call.request_id),
            unindexed(b"x-trace-id", trace),
        ]
        try:
            self._admit(call)
        except QuotaExceededError as error:
            call.refuse(error)
            if error.late_seconds:
                call.connection.pause(error.late_seconds)
        except Exception as error:  # noqa: BLE001 - any error becomes a status; the service logs it
            call.refuse(error)

    def start_call(self, call: GrpcCall, message: FramedMessage | None) -> None:
        """Run the method of a call; its message is complete, unless the client streams messages."""
        call.task = call.connection.loop.create_task(self._run(call, message))

    # ---- Running calls ----

    def _admit(self, call: GrpcCall) -> None:
        path = call.fields.get(b":path") or b""
        service = call.service
        method = service.methods.get(path)
        if method is None:
            raise no_method(path)
        if service is self.service:
            check_namespace(call.fields)
        call.use(method)
        service.check_head(call.fields)
        check_encoding(call.fields)
        left = seconds_left(call.fields)
        if self._process.is_stopping:
            raise _unavailable(_STOPPING)
        if method.is_open:
            self._make_room(call)
        elif self._calls - len(self._open_calls) > MAX_CALLS:
            raise _unavailable(_OVERLOADED)
        else:
            service.authenticate(call)
        if left is not None:
            call.timer = call.connection.loop.call_later(left, call.expire)
        if method.takes_many:
            self.start_call(call, None)

    def _make_room(self, call: GrpcCall) -> None:
        """Limit the calls without a credential; a new call ends the oldest, so that health checks are always
        answered.
        """
        others = sum(one in self._open_calls for one in call.connection.calls.values())
        if others >= MAX_OPEN_CALLS_EACH:
            raise GrpcError(Grpc.RESOURCE_EXHAUSTED, _MANY_OPEN, retry_after_ms=1_000)
        if len(self._open_calls) >= MAX_OPEN_CALLS:
            next(iter(self._open_calls)).refuse(_unavailable(_OVERLOADED))
        self._open_calls[call] = None

    async def _run(self, call: GrpcCall, message: FramedMessage | None) -> None:
        try:
            await self._answer(call, message)
        except asyncio.CancelledError:
            if not call.is_over:
                raise
        except Exception as error:  # noqa: BLE001 - any error becomes a status; the service logs it
            call.refuse(error)

    async def _answer(self, call: GrpcCall, message: FramedMessage | None) -> None:
        method = call.method
        assert method is not None
        content = await method.run(call, None if message is None else await self._parse(call, method, message))
        if content is not None:
            await call.send(content)
        call.finish()

    async def _parse(self, call: GrpcCall, method: GrpcMethod, message: FramedMessage) -> object:
        """Decompress and parse a message."""

        def parse() -> object:
            return method.parse(unpack(message, call.encoding, call.max_bytes))

        size = unpacked_size(message, call.max_bytes)
        account = call.connection.account
        if account is not None and not method.is_open:
            account.spend_bytes(size)
        if message.is_packed and not call.keep(size):
            raise _unavailable(_OVERFULL)
        if method.is_ordered:
            return await call.connection.order.read(size, parse)
        return await apart(size, parse)


def _unavailable(message: str) -> GrpcError:
    return GrpcError(Grpc.UNAVAILABLE, message, retry_after_ms=1_000)
