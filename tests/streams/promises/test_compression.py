"""Compressed reads: the same content for every client, tags that stay usable, and one compression a page."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from semel.kernel.http_answer import Answer
from semel.surfaces.streams import compression
from semel.surfaces.streams.compression import PAGE_COST_BYTES, PageCompression
from semel.surfaces.streams.metrics import StreamsMetrics
from semel.surfaces.streams.wire import codings
from semel.surfaces.streams.wire.codings import AcceptedCodings, parse_codings
from tests.streams.promises.test_frame_cache import page_of
from tests.streams.wire import CLOSED, JSON, OCTETS, TEXT, Streams, offset_of, refused, serving

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

TEXT_BODY = b"The same sentence once more. " * 700
SMALL_BODY = TEXT_BODY[:2_000]
EVERY = "gzip, deflate, br, zstd"


@pytest.fixture(scope="module")
def streams(tmp_path_factory: pytest.TempPathFactory, store_kind: str) -> Iterator[Streams]:
    with serving(tmp_path_factory.mktemp("compression") / "data", STREAMS_PAGE_BYTES="65536") as served:
        yield served


def read(
    streams: Streams, path: str, accept: str, headers: dict[str, str] | None = None, **query: str
) -> httpx.Response:
    """A read whose content is not decoded by the client."""
    asked = {"Accept-Encoding": accept} | (headers or {})
    with streams.client.stream("GET", path, headers=asked, params=query) as answer:
        answer._content = b"".join(answer.iter_raw())
    return answer


def decoded(answer: httpx.Response) -> bytes:
    coding = answer.headers.get("Content-Encoding")
    if coding == "gzip":
        return zlib.decompress(answer.content, 31)
    return zstd.decompress(answer.content) if coding == "zstd" else answer.content


def varies(answer: httpx.Response) -> bool:
    return "accept-encoding" in [name.strip().lower() for name in answer.headers.get("Vary", "").split(",")]


# -- what is sent -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 1_023, 1_024, 5_000, 65_535])
@pytest.mark.parametrize("kind", [JSON, TEXT, OCTETS])
@pytest.mark.parametrize(("accept", "coding"), [("gzip", "gzip"), (EVERY, "zstd"), ("br", None), ("", None)])
def test_a_read_has_the_same_content_in_every_coding(
    streams: Streams, kind: str, size: int, accept: str, coding: str | None
) -> None:
    body = b"a" * size if kind != JSON else json.dumps(["a" * max(0, size - 4)]).encode()
    path = streams.new(kind, body)
    answer = read(streams, path, accept)
    assert decoded(answer) == body
    assert answer.headers["Content-Length"] == str(len(answer.content))
    assert answer.headers.get("Content-Encoding") == (coding if len(body) >= 1_024 else None)
    assert varies(answer)
    assert answer.headers["Content-Type"] == kind


def test_content_that_does_not_get_smaller_is_sent_as_stored(streams: Streams) -> None:
    body = os.urandom(5_000)
    path = streams.new(OCTETS, body)
    for _ in range(2):
        answer = read(streams, path, EVERY)
        assert "Content-Encoding" not in answer.headers
        assert answer.content == body
        assert varies(answer)


@pytest.mark.parametrize("kind", ["image/png", "IMAGE/JPEG; q=1", "application/gzip", "video/mp4", "application/zip"])
def test_types_that_are_compressed_already_are_sent_as_stored(streams: Streams, kind: str) -> None:
    path = streams.new(kind, TEXT_BODY)
    answer = read(streams, path, EVERY)
    assert "Content-Encoding" not in answer.headers
    assert answer.content == TEXT_BODY


@pytest.mark.parametrize("accept", ["gzip, identity;q=0", "gzip, *;q=0"])
def test_a_client_that_takes_no_plain_content_gets_a_small_page_compressed(streams: Streams, accept: str) -> None:
    for kind, body in ((TEXT, b"a"), ("image/png", b"a"), (OCTETS, os.urandom(2_000))):
        answer = read(streams, streams.new(kind, body), accept)
        assert answer.headers["Content-Encoding"] == "gzip"
        assert decoded(answer) == body


def test_pages_of_a_long_stream_are_compressed_one_by_one(streams: Streams) -> None:
    path = streams.new(TEXT)
    pieces = [bytes([65 + number]) * 30_000 for number in range(5)]
    for piece in pieces:
        streams.post(path, piece, content_type=TEXT)
    answers = [read(streams, path, "gzip", offset="-1")]
    while "Stream-Up-To-Date" not in answers[-1].headers:
        answers.append(read(streams, path, "gzip", offset=offset_of(answers[-1])))
    assert len(answers) == 3
    assert {answer.headers["Content-Encoding"] for answer in answers} == {"gzip"}
    assert b"".join(map(decoded, answers)) == b"".join(pieces)


def test_a_long_poll_is_compressed(streams: Streams) -> None:
    path = streams.new(JSON, b'["first"]')
    tail = streams.tail(path)
    message = json.dumps("more " * 1_000).encode()
    with ThreadPoolExecutor() as pool:
        waiting = [
            pool.submit(read, streams, path, accept, live="long-poll", offset=tail) for accept in (EVERY, "gzip", "")
        ]
        streams.post(path, message)
        answers = [one.result() for one in waiting]
    assert [answer.headers.get("Content-Encoding") for answer in answers] == ["zstd", "gzip", None]
    for answer in answers:
        assert decoded(answer) == b"[" + message + b"]"
        assert varies(answer)


def test_a_head_and_an_event_stream_are_not_compressed(streams: Streams) -> None:
    path = streams.new(TEXT, TEXT_BODY, CLOSED)
    head = streams.client.head(path, headers={"Accept-Encoding": EVERY})
    assert "Content-Encoding" not in head.headers
    events = read(streams, path, EVERY, live="sse", offset="-1")
    assert "Content-Encoding" not in events.headers
    assert events.content.startswith(b"event: data\ndata:" + TEXT_BODY)


def test_without_compression_nothing_is_compressed_or_varies(tmp_path: Path, store_kind: str) -> None:
    with serving(tmp_path / "data", STREAMS_COMPRESSION="0") as plain:
        answer = read(plain, plain.new(TEXT, TEXT_BODY), "gzip, identity;q=0")
        assert "Content-Encoding" not in answer.headers
        assert answer.content == TEXT_BODY
        assert not varies(answer)


def test_a_client_that_decodes_by_itself_reads_it(streams: Streams) -> None:
    path = streams.new(TEXT, TEXT_BODY)
    answer = streams.client.get(path)
    assert answer.headers["Content-Encoding"] == "gzip"
    assert answer.content == TEXT_BODY


# -- tags -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("accept", ["gzip", "zstd", "identity"])
def test_the_tag_of_a_coding_gives_304_to_its_client_and_its_appends(streams: Streams, accept: str) -> None:
    path = streams.new(TEXT, TEXT_BODY)
    first = read(streams, path, accept)
    tag = first.headers["ETag"]
    for sent in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        again = read(streams, path, accept, {"If-None-Match": sent})
        assert again.status_code == 304
        assert again.headers["ETag"] == tag
        assert again.content == b""
        assert varies(again)
        assert "Content-Encoding" not in again.headers
    assert streams.post(path, b"more", {"If-Match": tag}, content_type=TEXT).status_code == 204
    refused(streams.post(path, b"twice", {"If-Match": tag}, content_type=TEXT), "PRECONDITION_FAILED")
    after = read(streams, path, accept, {"If-None-Match": tag})
    assert (after.status_code, decoded(after)) == (200, TEXT_BODY + b"more")


def test_codings_of_one_page_have_different_tags(streams: Streams) -> None:
    path = streams.new(TEXT, TEXT_BODY, CLOSED)
    tags = {read(streams, path, accept).headers["ETag"] for accept in ("gzip", "zstd", "identity")}
    assert len(tags) == 3


def test_a_tag_of_a_coding_that_the_client_no_longer_accepts_gives_the_content(streams: Streams) -> None:
    path = streams.new(TEXT, TEXT_BODY)
    tag = read(streams, path, "gzip").headers["ETag"]
    answer = read(streams, path, "identity", {"If-None-Match": tag})
    assert (answer.status_code, answer.content) == (200, TEXT_BODY)
    plain = read(streams, path, "identity").headers["ETag"]
    kept = read(streams, path, "gzip", {"If-None-Match": plain})
    assert (kept.status_code, kept.headers["ETag"]) == (304, plain)


# -- Accept-Encoding --------------------------------------------------------------------------------------------------


@pytest.mark.early
@pytest.mark.parametrize(
    ("header", "names"),
    [
        ("", [""]),
        ("gzip", ["gzip", ""]),
        ("GZIP", ["gzip", ""]),
        ("x-gzip", ["gzip", ""]),
        ("zstd", ["zstd", ""]),
        ("gzip, zstd", ["zstd", "gzip", ""]),
        ("gzip;q=1.0, zstd;q=0.5", ["gzip", "zstd", ""]),
        ("gzip ; q = 0.5 , identity", ["", "gzip"]),
        ("gzip, identity", ["gzip", ""]),
        ("gzip;q=0", [""]),
        ("gzip;q=0.000", [""]),
        ("gzip;q=0.001", ["gzip", ""]),
        ("gzip;q=2", [""]),
        ("gzip;q=x", [""]),
        ("gzip;q=", [""]),
        ("gzip;level=1", ["gzip", ""]),
        ("*", ["gzip", ""]),
        ("*;q=0", [""]),
        ("*, gzip;q=0", [""]),
        ("identity;q=0", [""]),
        ("identity;q=0, gzip", ["gzip"]),
        ("identity;q=0, *", ["gzip"]),
        ("*;q=0, zstd", ["zstd"]),
        ("br, deflate", [""]),
        (";;,,=", [""]),
        ("gzip," + "x" * 600, [""]),
    ],
)
def test_accept_encoding_is_weighed(header: str, names: list[str]) -> None:
    assert [name.decode() for name in parse_codings(header.encode()).names] == names


# -- the cache --------------------------------------------------------------------------------------------------------


GZIP = AcceptedCodings((b"gzip", b""))


def answer_of(content: bytes) -> Answer:
    return Answer(200, [(b"etag", b'"t"')], content)


class Counted:
    """The compressor; it notes what it compressed, and in which threads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[bytes] = []
        self.threads: set[str] = set()
        self.running = self.most = 0
        monkeypatch.setattr(compression, "compress", self._compress)

    def _compress(self, coding: bytes, content: bytes) -> bytes:
        self.running += 1
        self.most = max(self.most, self.running)
        self.made.append(content)
        self.threads.add(threading.current_thread().name)
        try:
            return codings.compress(coding, content)
        finally:
            self.running -= 1


@pytest.mark.early
def test_a_page_is_compressed_once_for_a_thousand_readers_and_not_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)

    async def scenario() -> list[Answer]:
        pages = PageCompression(StreamsMetrics())
        found = await asyncio.gather(
            *(pages.apply(answer_of(SMALL_BODY), page_of(SMALL_BODY), GZIP) for _ in range(1_000))
        )
        return [*found, await pages.apply(answer_of(SMALL_BODY), page_of(SMALL_BODY), GZIP)]

    answers = asyncio.run(scenario())
    assert counted.made == [SMALL_BODY]
    assert {zlib.decompress(answer.body, 31) for answer in answers} == {SMALL_BODY}
    assert all(name.startswith("semel-apart") for name in counted.threads)


@pytest.mark.early
def test_one_page_is_compressed_at_a_time_and_too_many_go_as_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    monkeypatch.setattr(compression, "WAITING_BYTES", 5 * len(TEXT_BODY))
    metrics = StreamsMetrics()

    async def scenario() -> list[Answer]:
        pages = PageCompression(metrics)
        lives = [b"life-%d" % number for number in range(8)]
        answers = await asyncio.gather(
            *(pages.apply(answer_of(TEXT_BODY), page_of(TEXT_BODY, life), GZIP) for life in lives)
        )
        assert pages._waiting_bytes == 0
        assert not pages._under_way
        return answers

    answers = asyncio.run(scenario())
    assert [answer.body == TEXT_BODY for answer in answers] == [False] * 5 + [True] * 3
    assert counted.most == 1
    assert metrics.compressions == {"made": 5, "refused": 3}


@pytest.mark.early
def test_the_kept_pages_have_a_limit_in_bytes_and_the_oldest_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    size = len(codings.compress(b"gzip", TEXT_BODY)) + PAGE_COST_BYTES
    monkeypatch.setattr(compression, "CACHE_BYTES", 3 * size)

    async def scenario() -> None:
        pages = PageCompression(StreamsMetrics())
        for life in (b"1", b"2", b"3", b"1", b"4", b"1", b"3", b"2"):
            await pages.apply(answer_of(TEXT_BODY), page_of(TEXT_BODY, life), GZIP)
        assert pages._bytes == 3 * size
        assert [key[0] for key in pages._pages] == [b"1", b"3", b"2"]

    asyncio.run(scenario())
    assert len(counted.made) == 5  # 1, 2, 3, then 4 in the place of 2, then 2 in the place of 4


@pytest.mark.early
def test_a_failed_compression_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(coding: bytes, content: bytes) -> bytes:
        raise MemoryError

    async def scenario() -> None:
        pages = PageCompression(StreamsMetrics())
        with monkeypatch.context() as patch:
            patch.setattr(compression, "compress", fail)
            with pytest.raises(MemoryError):
                await pages.apply(answer_of(TEXT_BODY), page_of(TEXT_BODY), GZIP)
        assert pages._waiting_bytes == 0
        answer = await pages.apply(answer_of(TEXT_BODY), page_of(TEXT_BODY), GZIP)
        assert dict(answer.headers) == {b"etag": b'"t-gzip"', b"content-encoding": b"gzip"}

    asyncio.run(scenario())
