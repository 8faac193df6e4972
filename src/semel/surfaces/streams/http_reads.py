"""GET and HEAD: catch-up reads, long polls and event streams; and the headers of every response."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from semel.engine.contract import UnavailableError
from semel.engine.reading import Reading
from semel.kernel.clock import Now
from semel.kernel.errors import Refused
from semel.server.context import Context
from semel.server.http.answer import SECURITY, Answer, BodyWriter, Header, StreamedAnswer, header_block
from semel.server.http.request import Request
from semel.server.settings import settings_of
from semel.server.thread_pool import COPIED_BYTES, apart
from semel.surfaces.streams.live import FrameCache, LiveReader, PageFrame, SharedReads, StreamEndedError
from semel.surfaces.streams.metrics import StreamsMetrics
from semel.surfaces.streams.reading import StreamPage, StreamState, first_page, found, state
from semel.surfaces.streams.rules.expiry import NOT_FOUND, use
from semel.surfaces.streams.settings import StreamsSettings
from semel.surfaces.streams.tables import StreamRow
from semel.surfaces.streams.wire.headers import stored_name
from semel.surfaces.streams.wire.requests import ReadMode, ReadRequest, parse_lookup, parse_read
from semel.surfaces.streams.wire.responses import (
    caught_up,
    control_event,
    described,
    next_cursor,
    polled,
    sse_headers,
)

T = TypeVar("T")


class StreamReads:
    """The HTTP handlers of reads."""

    def __init__(self, context: Context, metrics: StreamsMetrics) -> None:
        self._context = context
        self._engine = context.engine
        settings = settings_of(context.settings, StreamsSettings)
        self._page_bytes = settings.streams_page_bytes
        self._shared_reads = SharedReads(context.engine, self._page_bytes, metrics)
        self._frames = FrameCache()
        self._poll_seconds = settings.streams_long_poll_ms / 1_000
        self._sse_seconds = settings.streams_sse_max_ms / 1_000

    async def head(self, name: bytes, request: Request) -> Answer:
        """HEAD; it does not extend the time to live. With a key or a producer id it tells what is stored of them."""
        stored = stored_name(name)
        key, producer = parse_lookup(request.fields)
        hot = None if key is not None or producer is not None else self._shared_reads.row(stored)
        if hot is not None and hot.floor is None:
            return described(StreamState(hot))
        return described(await self._engine.read(lambda reading: state(reading, stored, key, producer)))

    async def get(self, name: bytes, request: Request) -> Answer | StreamedAnswer:
        """GET in its three modes."""
        stored = stored_name(name)
        try:
            wanted = parse_read(request.query)
        except Refused:
            await self._find(stored)  # report a missing stream before any other error
            raise
        if wanted.mode is ReadMode.CATCH_UP:
            return await self._catch_up(stored, wanted, request)
        first = self._shared_reads.first(stored, wanted.position)
        if first is None:
            first, _ = await self._first_page(stored, wanted, _nothing)
        if wanted.mode is ReadMode.SSE:
            return self._events(stored, wanted, first, request)
        return await self._poll(stored, wanted, first, request)

    async def _catch_up(self, stored: bytes, wanted: ReadRequest, request: Request) -> Answer:
        """One page from memory, or from the store: then the thread that reads it renders it too."""
        at_now = wanted.position is None
        private = self._context.principals.are_known
        known = b",".join(request.fields.all(b"if-none-match"))
        render = partial(caught_up, at_now=at_now, if_none_match=known, private=private)
        page = self._shared_reads.first(stored, wanted.position)
        if page is not None:
            return await apart(page.end - page.start, render, page, most=COPIED_BYTES)
        _, answer = await self._first_page(stored, wanted, render)
        return answer

    async def _find(self, stored: bytes) -> StreamRow:
        return await self._engine.read(lambda reading: found(reading, stored))

    async def _first_page(
        self, stored: bytes, wanted: ReadRequest, render: Callable[[StreamPage], T]
    ) -> tuple[StreamPage, T]:
        """Read the first page from the store and render it; a successful read extends the time to live."""

        def look(reading: Reading) -> tuple[StreamPage, T, Now]:
            first = first_page(reading, stored, wanted.position, self._page_bytes)
            return first, render(first), reading.now

        first, rendered, now = await self._engine.read(look)
        self._shared_reads.note(first)
        touches = use(first.stream, now)
        if touches:
            self._engine.touch(touches)
        return first, rendered

    async def _poll(self, stored: bytes, wanted: ReadRequest, first: StreamPage, request: Request) -> Answer:
        latest = first
        if not first.pieces and not first.is_final:
            with (
                self._context.live_reader(request.principal),
                LiveReader(self._context, self._shared_reads, stored, first, request) as reader,
            ):
                try:
                    latest = await reader.next(self._poll_seconds)
                except StreamEndedError:
                    await self._first_page(stored, wanted, _nothing)  # says why it ended
                    raise Refused.of(NOT_FOUND) from None
        size = latest.end - latest.start
        return await apart(size, polled, latest, self._cursor(wanted.cursor), most=COPIED_BYTES)

    def _events(self, stored: bytes, wanted: ReadRequest, first: StreamPage, request: Request) -> StreamedAnswer:
        if request.version == "1.0":
            raise Refused("INVALID_REQUEST", "An event stream needs HTTP/1.1; use a long poll.")
        produce = partial(self._produce, stored, wanted, first, request)
        seat = self._context.live_reader(request.principal)
        return StreamedAnswer(sse_headers(first.stream.content_type), produce, seat.close)

    async def _produce(
        self, stored: bytes, wanted: ReadRequest, first: StreamPage, request: Request, writer: BodyWriter
    ) -> None:
        with LiveReader(self._context, self._shared_reads, stored, first, request) as reader:
            cursor = self._cursor(wanted.cursor)
            first, frame = await self._framed(first, cursor)
            await self._send(reader, writer, first, frame, cursor)
            del frame
            if not first.is_final:
                await self._follow(reader, writer)

    async def _follow(self, reader: LiveReader, writer: BodyWriter) -> None:
        """Send page after page, and a heartbeat when there was none for a while, until the time of the connection is
        up.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + self._sse_seconds

        def take() -> bool:
            page = reader.hot_page()
            text = None if page is None else self._frames.small(page, self._cursor(None))
            if page is None or text is None or not writer.offer(text):
                return False
            reader.took(page)
            return True

        while (left := end - loop.time()) > 0 and not reader.is_over:
            try:
                latest = await reader.next(min(self._poll_seconds, left), take)
                cursor = self._cursor(None)
                latest, frame = await self._framed(latest, cursor)
            except (StreamEndedError, UnavailableError):
                return  # the promised content has been sent; the client reconnects for more
            await self._send(reader, writer, latest, frame, cursor)
            del frame
            if latest.is_final:
                return

    async def _framed(self, page: StreamPage, cursor: int) -> tuple[StreamPage, PageFrame | bytes]:
        """A page without its content, and what its readers share: the whole text, or the frame of a large content."""
        frame = self._frames.small(page, cursor) or await self._frames.frame(page)
        return StreamPage(page.stream, page.start, page.end, ()), frame

    async def _send(
        self, reader: LiveReader, writer: BodyWriter, page: StreamPage, frame: PageFrame | bytes, cursor: int
    ) -> None:
        """Send the content of a page, if any, and its control event.

        A small page is sent in one piece. A large page is sent in parts, each after the client has read the one before.
        """
        if isinstance(frame, bytes):
            await writer.write(frame)
            return
        for number in range(frame.parts - 1):
            if reader.is_over:
                return
            await writer.write(await self._frames.part(frame, number))
            await asyncio.sleep(0)
        last = await self._frames.part(frame, frame.parts - 1)
        await writer.write(last + control_event(page, cursor))

    def _cursor(self, sent: int | None) -> int:
        world = self._context.world
        chance = 0 if sent is None else int.from_bytes(world.random_bytes(4), "big")
        return next_cursor(world.wall_ms(), sent, chance)


def _nothing(page: StreamPage) -> None:
    """For a page that is rendered later."""


METHODS = b"GET, POST, PUT, DELETE, HEAD, OPTIONS"
ALLOW: Header = (b"allow", METHODS)

_RESPONSE_HEADERS = (
    b"stream-next-offset, stream-up-to-date, stream-cursor, stream-closed, stream-ttl, stream-expires-at, "
    b"stream-retention-age, stream-retention-bytes, stream-earliest-offset, "
    b"stream-sse-data-encoding, producer-epoch, producer-seq, producer-expected-seq, producer-received-seq, "
    b"idempotency-replayed, etag, location, content-type, vary, retry-after, x-request-id"
)

COMMON = header_block((*SECURITY, (b"access-control-expose-headers", _RESPONSE_HEADERS)))
