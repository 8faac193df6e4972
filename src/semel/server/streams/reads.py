"""GET and HEAD: catch-up, long poll, and event streams.

A live reader listens before it looks: it arms its watch, reads the log from its cursor, and waits only when there was
nothing. So no commit can fall between the look and the wait. Readers that stand at the same place share one look.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from semel.contracts.streams.reading import Page, find, page
from semel.contracts.streams.rules.append import NOT_FOUND
from semel.contracts.streams.rules.life import use
from semel.contracts.streams.tables import StreamRow
from semel.contracts.streams.wire.cursors import next_cursor
from semel.contracts.streams.wire.fields import Fields
from semel.contracts.streams.wire.reads import Mode, Read, parse_read
from semel.contracts.streams.wire.responses import Response, caught_up, described, polled
from semel.contracts.streams.wire.sse import frames, sse_headers
from semel.engine.reading import Reading
from semel.engine.signals import Watch
from semel.kernel.clock import Now
from semel.kernel.errors import Refused
from semel.kernel.keys import pack
from semel.kernel.retention import NEVER
from semel.server.asgi import Scope, Send
from semel.server.context import Context
from semel.server.protocol import CONNECTION, Connection
from semel.server.streams.headers import STATIC
from semel.server.streams.shared_looks import SharedLooks

_MISSING = Refused(NOT_FOUND.code, NOT_FOUND.detail)


class Reads:
    """The reading half of the host."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._engine = context.engine
        self._looks = SharedLooks(context.engine, context.settings.streams_page_bytes)
        self._poll_seconds = context.settings.streams_long_poll_ms / 1_000
        self._sse_seconds = context.settings.streams_sse_max_ms / 1_000

    async def head(self, name: bytes) -> Response:
        """HEAD; does not count as use."""
        stream = await self._engine.read(lambda reading: find(reading, pack(name)))
        if stream is None:
            raise Refused(NOT_FOUND.code, NOT_FOUND.detail)
        return described(stream)

    async def get(self, name: bytes, fields: Fields, scope: Scope, send: Send) -> Response | None:
        """GET in its three modes; the stream's existence is judged before the query."""
        name = pack(name)
        try:
            wanted = parse_read(scope["query_string"])
        except Refused:
            if await self._engine.read(lambda reading: find(reading, name)) is None:
                raise Refused(NOT_FOUND.code, NOT_FOUND.detail) from None
            raise
        first = await self._first_look(name, wanted)
        if wanted.mode is Mode.CATCH_UP:
            return caught_up(
                first,
                at_now=wanted.position is None,
                if_none_match=fields.get(b"if-none-match"),
                private=self._context.principals.are_known,
            )
        if wanted.mode is Mode.LONG_POLL:
            return await self._poll(name, wanted, first, scope)
        await self._events(name, wanted, first, scope, send)
        return None

    async def _first_look(self, name: bytes, wanted: Read) -> Page:
        """The first page; a read that reaches the stream restarts its window."""
        size = self._context.settings.streams_page_bytes

        def look(reading: Reading) -> tuple[Page | None, Now]:
            return page(reading, name, wanted.position, size), reading.now

        found, now = await self._engine.read(look)
        if found is None:
            raise Refused(NOT_FOUND.code, NOT_FOUND.detail)
        touches = use(found.stream, now)
        if touches:
            self._engine.touch(touches)
        return found

    async def _poll(self, name: bytes, wanted: Read, first: Page, scope: Scope) -> Response:
        latest = first
        if not first.pieces and not first.is_final:
            async for latest in self._pages(name, first, scope, self._poll_seconds):
                if latest.pieces or latest.is_final:
                    break
        return polled(latest, self._cursor(wanted.cursor))

    async def _events(self, name: bytes, wanted: Read, first: Page, scope: Scope, send: Send) -> None:
        headers = [*sse_headers(first.stream.content_type), *STATIC, (b"x-request-id", self._context.request_id())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        cursor = self._cursor(wanted.cursor)
        await send({"type": "http.response.body", "body": frames(first, cursor), "more_body": True})
        if not first.is_final:
            loop = asyncio.get_running_loop()
            end = loop.time() + self._sse_seconds
            latest = first
            while loop.time() < end and not latest.is_final:
                idle = True
                try:
                    async for latest in self._pages(name, latest, scope, min(self._poll_seconds, end - loop.time())):
                        if latest.pieces or latest.is_final:
                            idle = False
                            await send({"type": "http.response.body", "body": self._frames(latest), "more_body": True})
                        if latest.is_final:
                            break
                except Refused:
                    break
                if idle and not self._is_over(scope):
                    await send({"type": "http.response.body", "body": self._frames(latest), "more_body": True})
                if self._is_over(scope):
                    break
        self._context.metrics.requests["streams", "GET", 200] += 1
        await send({"type": "http.response.body", "body": b""})

    async def _pages(self, name: bytes, last: Page, scope: Scope, seconds: float) -> AsyncIterator[Page]:
        """Page after page behind the last one, until the time is up, the stream ends, or the client has gone."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        watch = self._engine.signals.watch(last.stream.id)
        connection: Connection | None = scope.get(CONNECTION)
        if connection is not None:
            connection.on_gone = watch.wake
        try:
            while not self._is_over(scope):
                watch.arm()
                latest = await self._looks.page(name, last.end)
                if latest is None or latest.stream.id != last.stream.id:
                    raise Refused(NOT_FOUND.code, NOT_FOUND.detail)
                last = latest
                yield latest
                if latest.is_final:
                    return
                if latest.pieces:
                    continue
                left = end - loop.time()
                if left <= 0 or not await self._wait(watch, latest.stream, left):
                    return
        finally:
            watch.close()

    async def _wait(self, watch: Watch, stream: StreamRow, seconds: float) -> bool:
        """Whether to look again: something happened, or the stream's end has come."""
        if stream.deadline == NEVER:
            return await watch.wait(seconds)
        left = max(0, stream.deadline - self._context.world.wall_ms()) / 1_000 + 0.01
        return await watch.wait(min(seconds, left)) or left < seconds

    def _is_over(self, scope: Scope) -> bool:
        connection: Connection | None = scope.get(CONNECTION)
        return self._context.is_stopping or (connection is not None and connection.gone)

    def _frames(self, latest: Page) -> bytes:
        return frames(latest, self._cursor(None))

    def _cursor(self, sent: int | None) -> int:
        world = self._context.world
        return next_cursor(world.wall_ms(), sent, int.from_bytes(world.random_bytes(4), "big"))
