"""Compressed pages for readers that accept them: made once for all readers of a page, never on the event loop.

Reads share the thread pool with other surfaces, so one page is compressed at a time, and content of up to
`WAITING_BYTES` waits for it. Content that would exceed that is sent as stored, which every client reads. The last
compressed pages are kept, up to `CACHE_BYTES`; one that got no smaller is remembered as such. A crash loses them and
nothing else.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from semel.kernel.http_answer import Answer
from semel.server.thread_pool import apart
from semel.surfaces.streams.metrics import StreamsMetrics
from semel.surfaces.streams.reading import StreamPage
from semel.surfaces.streams.rules.offsets import IDENTITY
from semel.surfaces.streams.wire.codings import COMPRESSED_FROM_BYTES, AcceptedCodings, compress, is_compressible
from semel.surfaces.streams.wire.responses import encoded

CACHE_BYTES = 8 * 1024 * 1024
"""Limit on the compressed pages in memory."""
PAGE_COST_BYTES = 256
"""The approximate bytes of a page in the cache besides its content."""
WAITING_BYTES = 16 * 1024 * 1024
"""Limit on the content that waits to be compressed; larger content is sent as stored."""

_PageKey = tuple[bytes, int, int, bytes]
"""The id of a stream, two positions, and the coding: the content between them never changes."""


class PageCompression:
    """The compressed pages of this process. Used on the event loop only."""

    def __init__(self, metrics: StreamsMetrics) -> None:
        self._metrics = metrics
        self._pages: OrderedDict[_PageKey, bytes] = OrderedDict()
        """The page that was used last is at the end; empty if it did not get smaller."""
        self._bytes = 0
        self._under_way: dict[_PageKey, asyncio.Task[bytes]] = {}
        self._waiting_bytes = 0
        self._turn = asyncio.Lock()

    async def apply(self, answer: Answer, page: StreamPage, accepted: AcceptedCodings) -> Answer:
        """The answer in the best coding of its client; as it is if that is not worth it, or too much is waiting."""
        coding, size = accepted.names[0], len(answer.body)
        if coding == IDENTITY or not size:
            return answer
        if accepted.must_compress:
            return encoded(answer, coding, await self._compressed(coding, answer.body))
        if size < COMPRESSED_FROM_BYTES or not is_compressible(page.stream.content_type):
            return answer
        key = (page.stream.id, page.start, page.end, coding)
        body = self._known(key)
        if body is None:
            if key not in self._under_way and self._waiting_bytes + size > WAITING_BYTES:
                self._metrics.compressions["refused"] += 1
                return answer
            body = await self._made(key, answer.body)
        return encoded(answer, coding, body) if body else answer

    def _known(self, key: _PageKey) -> bytes | None:
        body = self._pages.get(key)
        if body is not None:
            self._pages.move_to_end(key)
            self._metrics.compressions["cached"] += 1
        return body

    async def _made(self, key: _PageKey, content: bytes) -> bytes:
        task = self._under_way.get(key)
        if task is None:
            self._waiting_bytes += len(content)
            task = self._under_way[key] = asyncio.create_task(self._make(key, content))
        return await asyncio.shield(task)

    async def _make(self, key: _PageKey, content: bytes) -> bytes:
        try:
            made = await self._compressed(key[-1], content)
        finally:
            self._waiting_bytes -= len(content)
            del self._under_way[key]
        kept = made if len(made) < len(content) else b""
        self._keep(key, kept)
        return kept

    async def _compressed(self, coding: bytes, content: bytes) -> bytes:
        async with self._turn:
            self._metrics.compressions["made"] += 1
            return await apart(len(content), compress, coding, content, most=0)

    def _keep(self, key: _PageKey, body: bytes) -> None:
        self._pages[key] = body
        self._bytes += len(body) + PAGE_COST_BYTES
        while self._bytes > CACHE_BYTES:
            _, dropped = self._pages.popitem(last=False)
            self._bytes -= len(dropped) + PAGE_COST_BYTES
