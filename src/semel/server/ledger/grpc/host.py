"""The gRPC server of the ledger: checks heads, reads messages, runs methods, sends statuses.

Order of judgement: path; API version, compression and deadline; the credential; then the message. A caller that is not
let in has not sent a message yet, or only the beginning of one. It runs on the loop of the HTTP server, on a port of
its own.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from semel.contracts.ledger.commands import Refusal
from semel.contracts.ledger.refusals import RefusedLedger
from semel.engine.contract import EngineError
from semel.kernel.errors import Refused
from semel.server.admission import whence
from semel.server.context import Context
from semel.server.ledger.access import SURFACE
from semel.server.ledger.desk import Asked, Desk
from semel.server.ledger.faults import engine_refusal, internal_refusal, server_refusal
from semel.server.ledger.grpc.admin_service import AdminService
from semel.server.ledger.grpc.call import Call, Method
from semel.server.ledger.grpc.connection import Connection
from semel.server.ledger.grpc.frames import Framed, unpack, unpacked_size
from semel.server.ledger.grpc.heads import (
    admit_call,
    check_encoding,
    http_refusal,
    no_method,
    seconds_left,
    trace_id,
)
from semel.server.ledger.grpc.health_services import HealthService, StandardHealth
from semel.server.ledger.grpc.read_service import ReadService
from semel.server.ledger.grpc.reflection import Reflection
from semel.server.ledger.grpc.statuses import unindexed
from semel.server.ledger.grpc.write_service import WriteService
from semel.server.ledger.versions import check_version
from semel.server.threads import apart

_log = logging.getLogger("semel.ledger")

MAX_CONNECTIONS = 10_000
MAX_CALLS = 20_000
MAX_OPEN_CALLS = 1_000
"""Calls that need no credential are counted apart from the others; the oldest makes room for a new one."""
MAX_OPEN_CALLS_EACH = 16
"""Limit of open calls on one connection."""
CHECK_SECONDS = 5.0
LAST_WORDS_SECONDS = 1.0
"""At the end, for answers that are on their way."""
ANSWERS_SHARE = 2
"""Unread answers may have 1 / ANSWERS_SHARE of the bytes that requests and answers may have together."""
BACKLOG = 4_096
_OVERLOADED = Refusal("unavailable", "Too many calls are under way; try again in a moment.", {}, 1_000)
_MANY_OPEN = Refusal("resource_exhausted", "Too many such calls are under way on this connection.", {}, 1_000)
_OVERFULL = Refusal("unavailable", "Too many requests are being read; try again in a moment.", {}, 1_000)
_STOPPING = Refusal("unavailable", "The server is stopping; send the same request again.", {}, 1_000)


class GrpcHost:
    """The gRPC server on one listener."""

    def __init__(self, context: Context, desk: Desk) -> None:
        self._context = context
        self._desk = desk
        self.max_message_bytes = context.settings.max_body_bytes
        self._max_held_bytes = context.settings.max_uploads_bytes
        self._held = 0
        self._unsent = 0
        self._calls = 0
        self._open_calls: dict[Call, None] = {}
        """Open calls in the order of their arrival."""
        self._change = asyncio.Event()
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self._chore: asyncio.Task[None] | None = None
        reflection = Reflection()
        services = (
            WriteService(desk),
            ReadService(desk),
            AdminService(desk),
            HealthService(desk, self._judge),
            StandardHealth(desk, reflection.services),
            reflection,
        )
        self._methods: dict[bytes, Method] = {
            method.path: method for service in services for method in service.methods()
        }

    # ---- The listener ----

    async def start(self, host: str, port: int) -> None:
        """Listen; `OSError` when that address cannot be had."""
        loop = asyncio.get_running_loop()
        make = partial(Connection, self, loop)
        is_reused = sys.platform != "win32" or None
        self._server = await loop.create_server(make, host, port, backlog=BACKLOG, reuse_address=is_reused)
        self._chore = loop.create_task(self._check())

    @property
    def port(self) -> int:
        """Where it listens."""
        assert self._server is not None
        address: tuple[str, int] = self._server.sockets[0].getsockname()
        return address[1]

    async def stop(self, grace: float) -> None:
        """Accept nothing new, let running calls end within the time, then cancel the rest."""
        if self._server is None or self._chore is None:
            return
        self._server.close()
        self._chore.cancel()
        for connection in list(self._connections):
            connection.retire()
        await self._until(lambda: not self._calls, grace)
        tasks = [call.task for one in self._connections for call in one.calls.values() if call.task is not None]
        for end in (Connection.close, Connection.abort):
            for connection in list(self._connections):
                end(connection)
            await self._until(lambda: not self._connections, LAST_WORDS_SECONDS)
        await asyncio.gather(*tasks, self._chore, return_exceptions=True)
        self._server = None

    async def _until(self, is_so: Callable[[], bool], seconds: float) -> None:
        """Wait for something that the end of a call or a connection brings about, but not longer than this."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not is_so():
                    self._change.clear()
                    await self._change.wait()

    async def _check(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            for connection in list(self._connections):
                connection.check(loop.time())

    # ---- What connections ask for ----

    def arrive(self, connection: Connection) -> bool:
        """Register a connection; False when the limit is reached."""
        if len(self._connections) >= MAX_CONNECTIONS:
            return False
        now, limit = asyncio.get_running_loop().time(), self._context.connection_limit
        if limit.refusal(connection.peer, 0, connection.descriptor, now) is not None:
            return False
        self._connections.add(connection)
        return True

    def depart(self, connection: Connection) -> None:
        """And gone."""
        if connection in self._connections:
            self._connections.discard(connection)
            self._context.connection_limit.leave(connection.peer)
        self._change.set()

    def hold(self, size: int) -> bool:
        """Count `size` bytes of requests as held (below zero: as freed); False when all together are too many."""
        self._held += size
        return self._held + self._unsent <= self._max_held_bytes

    def hold_answer(self, size: int) -> bool:
        """The same for answers that the client has not taken yet; they leave a part to the requests."""
        self._unsent += size
        most = self._max_held_bytes
        return self._unsent <= most // ANSWERS_SHARE and self._held + self._unsent <= most

    def note(self, refusal: Refusal) -> None:
        """A call is being refused."""
        self._desk.journal.refused(refusal)

    def count(self, call: Call, number: int) -> None:
        """A call has ended."""
        self._calls -= 1
        self._open_calls.pop(call, None)
        name = "-" if call.method is None else call.method.name
        self._context.metrics.requests[SURFACE, f"grpc {name}", number] += 1
        self._change.set()

    def open(self, call: Call) -> None:
        """Judge the head of a call."""
        self._calls += 1
        not_grpc = http_refusal(call.fields)
        if not_grpc is not None:
            call.reject(not_grpc)
            return
        trace = trace_id(call.fields) or self._context.world.random_bytes(16).hex().encode()
        call.head = [unindexed(b"x-request-id", self._context.request_id()), unindexed(b"x-trace-id", trace)]
        try:
            self._admit(call)
        except RefusedLedger as refused:
            call.refuse(refused.refusal)
        except Refused as refused:
            call.refuse(server_refusal(refused.problem))
        except Exception:  # noqa: BLE001 - whatever it is, the caller gets an answer and the log the details
            call.refuse(self._fault())

    def start_call(self, call: Call, message: Framed | None) -> None:
        """Run the method of a call, whose message is complete if it has only one."""
        call.task = call.connection.loop.create_task(self._run(call, message))

    # ---- What becomes of a call ----

    def _admit(self, call: Call) -> None:
        path = call.fields.get(b":path") or b""
        method = self._methods.get(path)
        if method is None:
            raise RefusedLedger.of(no_method(path))
        call.use(method)
        check_version(call.fields)
        check_encoding(call.fields)
        left = seconds_left(call.fields)
        if self._context.is_stopping:
            raise RefusedLedger.of(_STOPPING)
        if method.is_open:
            self._make_room(call)
        elif self._calls - len(self._open_calls) > MAX_CALLS:
            raise RefusedLedger.of(_OVERLOADED)
        else:
            self._judge(call)
        if left is not None:
            call.timer = call.connection.loop.call_later(left, call.expire)
        if method.takes_many:
            self.start_call(call, None)

    def _make_room(self, call: Call) -> None:
        """Unauthenticated callers may keep few calls open, and not for long under load: health stays available."""
        others = sum(one in self._open_calls for one in call.connection.calls.values())
        if others >= MAX_OPEN_CALLS_EACH:
            raise RefusedLedger.of(_MANY_OPEN)
        if len(self._open_calls) >= MAX_OPEN_CALLS:
            next(iter(self._open_calls)).refuse(_OVERLOADED)
        self._open_calls[call] = None

    def _judge(self, call: Call) -> Asked:
        """Who calls; refused without a credential that holds."""
        path = call.fields.get(b":path") or b""
        caller = admit_call(self._context, call.fields, path, call.connection.peer)
        if self._context.principals.are_known:
            call.caller.principal = caller.principal.actor
        where = whence({"raw_path": path, "client": (call.connection.peer, 0)})
        call.asker = self._desk.asked(caller.principal, call.caller, where, has_token=caller.has_token)
        return call.asker

    async def _run(self, call: Call, message: Framed | None) -> None:
        try:
            await self._answer(call, message)
        except RefusedLedger as refused:
            call.refuse(refused.refusal)
        except Refused as refused:
            call.refuse(server_refusal(refused.problem))
        except EngineError as error:
            call.refuse(engine_refusal(error))
        except asyncio.CancelledError:
            if not call.is_over:
                raise
        except Exception:  # noqa: BLE001 - whatever it is, the caller gets an answer and the log the details
            call.refuse(self._fault())

    async def _answer(self, call: Call, message: Framed | None) -> None:
        method = call.method
        assert method is not None
        content = await method.run(call, None if message is None else await self._parse(call, method, message))
        if content is not None:
            await call.send(content)
        call.finish()

    async def _parse(self, call: Call, method: Method, message: Framed) -> object:
        """Decode a message."""

        def parse() -> object:
            return method.parse(unpack(message, call.encoding, call.max_bytes))

        size = unpacked_size(message, call.max_bytes)
        if message.is_packed and not call.keep(size):
            raise RefusedLedger.of(_OVERFULL)
        if method.is_ordered:
            return await call.connection.turns.read(size, parse)
        return await apart(size, parse)

    def _fault(self) -> Refusal:
        error_id = self._context.world.random_bytes(8).hex()
        _log.exception("fault in a call", extra={"error_id": error_id})
        return internal_refusal(error_id)
