"""The tail cache: the same answers as from the store, after any sequence of writes, and never of an unknown commit."""

from __future__ import annotations

import asyncio
import os
import random
import re
from pathlib import Path

import pytest

from semel.kernel.errors import Refused
from semel.kernel.http_answer import Answer
from semel.kernel.verdict import NEVER
from semel.store.protocol import Changes
from semel.surfaces.streams import tail_cache
from semel.surfaces.streams.metrics import StreamsMetrics
from semel.surfaces.streams.reading import StreamState, first_page
from semel.surfaces.streams.rules.offsets import parse_offset
from semel.surfaces.streams.tables import CHUNK, STREAM, ChunkRow, StreamRow
from semel.surfaces.streams.tail_cache import TailCache
from semel.surfaces.streams.wire.headers import stored_name
from semel.surfaces.streams.wire.responses import caught_up, described
from tests.harness.faulty_vfs import FaultyVfs
from tests.streams.reads.served import Answered, Served, served

PAGE_BYTES = 256
TYPES = ("application/json", "text/plain", "application/octet-stream")
CASES = int(os.environ.get("SEMEL_READ_CASES", "250"))


class Random:
    """Random writes to three streams, and reads that are compared with the store."""

    def __init__(self, server: Served, seed: int) -> None:
        self.server = server
        self.chance = random.Random(seed)
        self.offsets: dict[str, list[str]] = {}
        self.compared = 0

    async def step(self) -> None:
        """One write or several at once, then reads."""
        name = self.chance.choice("abc")
        kind = self.chance.choices(("append", "several", "large", "close", "delete", "create"), (8, 4, 1, 1, 1, 2))[0]
        await getattr(self, kind)(name)
        for other in self.chance.sample("abc", 2):
            await self.compare(other)

    async def create(self, name: str) -> None:
        if self.chance.random() < 0.1:
            await self.server.ask("PUT", name, content_type=self.type_of(name), stream_ttl="1000")
        else:
            await self.server.ask("PUT", name, content_type=self.type_of(name))
        self.offsets.setdefault(name, [])

    async def append(self, name: str, size: int | None = None) -> None:
        found = await self.server.ask(
            "POST", name, self.body(name, size or self.chance.randrange(1, 90)), content_type=self.type_of(name)
        )
        if found.status == 204:
            self.offsets.setdefault(name, []).append(found.headers[b"stream-next-offset"].decode())

    async def several(self, name: str) -> None:
        for _ in range(self.chance.randrange(2, 6)):
            await self.append(name)

    async def large(self, name: str) -> None:
        await self.append(name, self.chance.choice((300, 900, 70_000)))

    async def close(self, name: str) -> None:
        await self.server.ask("POST", name, stream_closed="true")

    async def delete(self, name: str) -> None:
        await self.server.ask("DELETE", name)
        self.offsets.pop(name, None)

    def type_of(self, name: str) -> str:
        return TYPES["abc".index(name)]

    def body(self, name: str, size: int) -> bytes:
        content = self.chance.choice((b"x", b"\x00", b"\n")) * size
        return b'"%s"' % (b"x" * size) if self.type_of(name) == TYPES[0] else content

    async def compare(self, name: str) -> None:
        """A read of each kind, from memory if it is there, gives what the store gives."""
        known = self.offsets.get(name, [])
        offset = self.chance.choice(("now", "-1", *known[-6:], *known[-2:], "0000000000000000_0000000000000007"))
        found = await self.server.ask("GET", f"{name}?offset={offset}")
        truth, row = await self.truth(name, offset)
        self.compared += 1
        assert same(found, truth), (name, offset, found, truth)
        head = await self.server.ask("HEAD", name)
        assert (head.status == 404) if row is None else same(head, row)

    async def truth(self, name: str, offset: str) -> tuple[Answer | None, Answer | None]:
        scope, asked = stored_name(name.encode()), parse_offset(offset.encode())
        engine = self.server.context.engine
        try:
            page = await engine.read(lambda reading: first_page(reading, scope, asked, PAGE_BYTES))
        except Refused:
            return None, None
        state = StreamState(page.stream)
        return caught_up(page, at_now=asked is None, if_none_match=b"", private=False), described(state)


def same(found: Answered, truth: Answer | None) -> bool:
    """Whether an answer has the status, the headers and the body of the store's."""
    if truth is None:
        return found.status == 404
    wanted = {name: value for name, value in truth.headers if name not in (b"cache-control",)}
    return (found.status, found.body) == (truth.status, truth.body) and wanted.items() <= found.headers.items()


@pytest.mark.parametrize("seed", range(3))
def test_every_read_from_memory_is_the_read_from_the_store(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail_cache, "TAIL_BYTES", 1_200)
    monkeypatch.setattr(tail_cache, "CACHE_BYTES", 3_000)
    monkeypatch.setattr(tail_cache, "_SPARE", 4)

    async def test() -> None:
        async with served(tmp_path, streams_page_bytes=PAGE_BYTES) as server:
            cases = Random(server, seed)
            for _ in range(CASES):
                await cases.step()
                assert server.reads.tails.size == sum(tail.size for tail in server.reads.tails._tails.values()) <= 3_000
            assert cases.compared == 2 * CASES
            assert server.pages["memory"] > 20
            assert server.pages["store"] > 20

    asyncio.run(test())


def data_in(written: list[bytes]) -> bytes:
    """The content of the data events of a stream of text."""
    body = b"".join(written).partition(b"\r\n\r\n")[2]
    return b"".join(re.findall(rb"event: data\ndata:([a-z0-9;]*)\n", body))


def test_live_readers_of_any_pace_get_the_log_once_and_in_order(tmp_path: Path) -> None:
    chance = random.Random(5)

    async def test() -> None:
        async with served(tmp_path) as server:
            await server.ask("PUT", "t", content_type="text/plain")
            readers = [server.open("t?live=sse&offset=now") for _ in range(40)]
            await asyncio.sleep(0.05)
            sent = b""
            for number in range(120):
                for protocol, _ in chance.sample(readers, 3):
                    protocol.pause_writing()
                for protocol, _ in chance.sample(readers, 6):
                    protocol.resume_writing()
                size = 40_000 if number % 29 == 7 else chance.randrange(1, 30)
                body = b"%d;" % number + b"x" * size
                assert (await server.ask("POST", "t", body, content_type="text/plain")).status == 204
                sent += body
            for protocol, _ in readers:
                protocol.resume_writing()
            for _ in range(1_000):
                if all(data_in(pipe.written) == sent for _, pipe in readers):
                    break
                await asyncio.sleep(0.01)
            assert [data_in(pipe.written) == sent for _, pipe in readers] == [True] * 40
            assert server.pages["memory"] > 1_000

    asyncio.run(test())


def test_a_client_that_does_not_read_is_sent_nothing_more_until_it_reads(tmp_path: Path) -> None:
    async def test() -> None:
        async with served(tmp_path) as server:
            await server.ask("PUT", "t", content_type="text/plain")
            protocol, pipe = server.open("t?live=sse&offset=now")
            await asyncio.sleep(0.05)
            protocol.pause_writing()
            before = len(pipe.written)
            for number in range(20):
                await server.ask("POST", "t", b"%d;" % number, content_type="text/plain")
            await asyncio.sleep(0.05)
            assert len(pipe.written) == before
            protocol.resume_writing()
            for _ in range(200):
                if data_in(pipe.written).endswith(b"19;"):
                    break
                await asyncio.sleep(0.01)
            assert data_in(pipe.written) == b"".join(b"%d;" % number for number in range(20))

    asyncio.run(test())


def test_a_reader_of_a_deleted_stream_ends_and_gets_nothing_of_the_next_one(tmp_path: Path) -> None:
    async def test() -> None:
        async with served(tmp_path) as server:
            await server.ask("PUT", "t", content_type="text/plain")
            protocol, pipe = server.open("t?live=sse&offset=now")
            await asyncio.sleep(0.02)
            await server.ask("POST", "t", b"old", content_type="text/plain")
            await server.ask("DELETE", "t")
            await server.ask("PUT", "t", content_type="text/plain")
            await server.ask("POST", "t", b"new", content_type="text/plain")
            for _ in range(200):
                if protocol.running is None:
                    break
                await asyncio.sleep(0.01)
            assert protocol.running is None
            assert data_in(pipe.written) == b"old"
            assert (await server.ask("GET", "t?offset=-1")).body == b"new"

    asyncio.run(test())


def test_content_of_a_commit_that_failed_is_not_in_memory(tmp_path: Path) -> None:
    async def test() -> None:
        with FaultyVfs("failing-tails") as vfs:
            async with served(tmp_path, vfs.name) as server:
                await server.ask("PUT", "t", content_type="text/plain")
                await server.ask("GET", "t?offset=now")
                await server.ask("POST", "t", b"stored", content_type="text/plain")
                before = server.reads.tails.size
                assert before > 0
                vfs.fail_sync = True
                failed = await server.ask("POST", "t", b"lost", content_type="text/plain")
                assert failed.status == 503
                assert server.reads.tails.size == before
                assert server.reads.first(stored_name(b"t"), None) is None  # the state of the disk is not known
                vfs.mend()

    asyncio.run(test())


def row(life: bytes, tail: int, scope: bytes = b"s") -> StreamRow:
    return StreamRow(scope, scope, life, b"text/plain", None, None, None, NEVER, 0, 0, tail, 0, None, None, None, None)


def test_a_commit_that_makes_no_room_for_one_of_its_own_streams_drops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail_cache, "CACHE_BYTES", 600)
    cache = TailCache(PAGE_BYTES, StreamsMetrics())
    for scope in (b"a", b"b"):
        cache.watch(row(scope, 0, scope))
    for end in (200, 400, 600):
        chunks = [ChunkRow(scope, end, b"x" * 200, 1, 0) for scope in (b"b", b"a")]
        cache.committed(Changes({CHUNK: chunks}, {STREAM: [row(b"b", end, b"b"), row(b"a", end, b"a")]}, {}))
        assert cache.size == sum(tail.size for tail in cache._tails.values()) <= 600


def test_pages_that_are_kept_for_other_readers_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail_cache, "KEPT_PIECES", 300)
    cache = TailCache(PAGE_BYTES, StreamsMetrics())
    cache.watch(row(b"one", 0))
    chunks = [ChunkRow(b"one", end, b"x", 1, 0) for end in range(1, 101)]
    cache.committed(Changes({CHUNK: chunks}, {STREAM: [row(b"one", 100)]}, {}))
    for position in range(60):
        page = cache.page(b"s", position)
        assert page is not None
        assert page.pieces == (b"x",) * (100 - position)
        kept = cache._tails[b"s"].pages
        assert kept[position] is page is cache.page(b"s", position)
        assert sum(len(one.pieces) for one in kept.values()) <= 300


def test_a_stream_that_is_replaced_in_one_commit_has_nothing_of_the_one_before() -> None:
    cache = TailCache(PAGE_BYTES, StreamsMetrics())
    cache.watch(row(b"one", 0))
    cache.committed(Changes({CHUNK: [ChunkRow(b"one", 3, b"old", 1, 0)]}, {STREAM: [row(b"one", 3)]}, {}))
    page = cache.page(b"s", 0)
    assert page is not None
    assert page.pieces == (b"old",)
    cache.committed(Changes({CHUNK: [ChunkRow(b"two", 3, b"new", 1, 0)]}, {STREAM: [row(b"two", 3)]}, {}))
    assert cache.page(b"s", 0) is None
    cache.watch(row(b"two", 3))
    cache.committed(Changes({}, {STREAM: [row(b"three", 3)]}, {}))
    assert cache.row(b"s") is None


def test_a_commit_in_parts_drops_what_it_may_have_changed(tmp_path: Path) -> None:
    async def test() -> None:
        async with served(tmp_path) as server:
            await server.ask("PUT", "t", content_type="text/plain")
            await server.ask("GET", "t?offset=now")
            await server.ask("POST", "t", b"stored", content_type="text/plain")
            assert server.reads.tails.size > 0
            server.reads.tails.committed(None)
            assert (server.reads.tails.size, len(server.reads.tails)) == (0, 0)

    asyncio.run(test())
