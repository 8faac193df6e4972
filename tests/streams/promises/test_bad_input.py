"""Bad input is refused in words, stores nothing and never troubles the server; so do callers without the right.

Each test looks at the stream before and after. What is malformed as HTTP goes over a plain socket.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harness.server import RunningServer
from tests.harness.together import log_of
from tests.streams.wire import (
    CLOSED,
    JSON,
    KEY,
    ROOT,
    START,
    TEXT,
    Streams,
    Wire,
    is_problem,
    offset_of,
    producer,
    raw,
    raw_append,
    refused,
    request,
    serving,
)

BODY_LIMIT = 65_536


@pytest.fixture(scope="module")
def streams(tmp_path_factory: pytest.TempPathFactory, store_kind: str) -> Iterator[Streams]:
    data = tmp_path_factory.mktemp("bad-input") / "data"
    with serving(data, MAX_BODY_BYTES=str(BODY_LIMIT), STREAMS_LONG_POLL_MS="50", SHUTDOWN_MS="1000") as served:
        yield served


def unharmed(streams: Streams, path: str, tail: str = START) -> None:
    """The stream is open, where it was, and takes the next append."""
    after = streams.head(path)
    assert (after.status_code, offset_of(after), after.headers.get("Stream-Closed")) == (200, tail, None)
    assert streams.post(path, b"1").status_code == 204


# -- JSON -------------------------------------------------------------------------------------------------------------

INVALID_JSON: dict[str, bytes] = {
    "space": b" ",
    "newline": b"\n",
    "open object": b"{",
    "open array": b"[",
    "open string": b'"a',
    "open escape": b'"\\',
    "half an escape": rb'"\u12"',
    "unknown escape": rb'"\x41"',
    "truncated object": b'{"a":1',
    "truncated array": b"[1,2",
    "truncated literal": b"tru",
    "only a close": b"]",
    "wrong close": b"[1}",
    "trailing comma in an array": b"[1,]",
    "trailing comma in an object": b'{"a":1,}',
    "leading comma": b"[,1]",
    "two commas": b"[1,,2]",
    "no comma": b"[1 2]",
    "no colon": b'{"a" 1}',
    "no value": b'{"a":}',
    "unquoted name": b"{a:1}",
    "number as a name": b"{1:1}",
    "single quotes": b"'a'",
    "NaN": b"NaN",
    "NaN inside": b"[1,NaN]",
    "Infinity": b"Infinity",
    "-Infinity": b'{"a":-Infinity}',
    "True": b"True",
    "undefined": b"undefined",
    "leading zero": b"01",
    "minus zero one": b"-01",
    "plus": b"+1",
    "only a minus": b"-",
    "point in front": b".5",
    "point at the end": b"5.",
    "open exponent": b"1e",
    "hexadecimal": b"0x10",
    "underscore": b"1_000",
    "comment": b"1 // one",
    "block comment": b"/**/1",
    "two values": b"1 2",
    "two arrays": b"[1][2]",
    "two lines": b'{"a":1}\n{"a":2}',
    "trailing text": b"[1] x",
    "trailing NUL": b"1\0",
    "vertical tab": b"\x0b1",
    "no-break space": b"\xc2\xa01",
    "byte order mark": b"\xef\xbb\xbf1",
    "UTF-16": '{"a":1}'.encode("utf-16"),
    "raw newline in a string": b'"a\nb"',
    "raw control character": b'"\x01"',
    "invalid UTF-8": b'"\xff"',
    "invalid UTF-8 outside": b"\xff",
    "truncated UTF-8": b'"\xc3"',
    "overlong UTF-8": b'"\xc0\xaf"',
    "surrogate in UTF-8": b'"\xed\xa0\x80"',
    "beyond Unicode": b'"\xf4\x90\x80\x80"',
    "open arrays": b"[" * 20_000,
    "open objects": b'{"a":' * 10_000,
}


@pytest.mark.parametrize("name", INVALID_JSON)
def test_invalid_json_is_refused(streams: Streams, name: str) -> None:
    path = streams.new()
    refused(streams.post(path, INVALID_JSON[name]), "INVALID_JSON")
    refused(streams.post(path, INVALID_JSON[name], CLOSED), "INVALID_JSON")
    unharmed(streams, path)
    fresh = streams.path()
    refused(streams.put(fresh, JSON, INVALID_JSON[name]), "INVALID_JSON")
    assert streams.head(fresh).status_code == 404


DEEP: dict[str, Callable[[int], bytes]] = {
    "arrays": lambda depth: b"[" * depth + b"1" + b"]" * depth,
    "objects": lambda depth: b'{"a":' * depth + b"1" + b"}" * depth,
}


@pytest.mark.parametrize("depth", [64, 65, 66, 1000, 10_000, 30_000])
@pytest.mark.parametrize("kind", DEEP)
def test_deep_json_is_kept_or_refused_but_never_a_fault(streams: Streams, kind: str, depth: int) -> None:
    path, body = streams.new(), DEEP[kind](depth)[:BODY_LIMIT]
    answer = streams.post(path, body)
    if answer.status_code == 204:
        assert streams.get(path).content == (body if kind == "arrays" else b"[" + body + b"]")
    else:
        refused(answer, "INVALID_JSON")
        unharmed(streams, path)


def test_json_a_hundred_thousand_deep_is_no_fault(tmp_path_factory: pytest.TempPathFactory) -> None:
    with serving(tmp_path_factory.mktemp("deep") / "data") as streams:
        for kind in DEEP.values():
            path = streams.new()
            refused(streams.post(path, kind(100_000)), "INVALID_JSON")
            unharmed(streams, path)


# -- Headers ----------------------------------------------------------------------------------------------------------

MALFORMED_APPEND: dict[str, tuple[list[bytes], str]] = {
    "producer id only": ([b"Producer-Id: p"], "INVALID_PRODUCER"),
    "producer epoch not a number": (
        [b"Producer-Id: p", b"Producer-Epoch: \xff", b"Producer-Seq: 0"],
        "INVALID_PRODUCER",
    ),
    "producer seq huge": (
        [b"Producer-Id: p", b"Producer-Epoch: 0", b"Producer-Seq: " + b"9" * 5000],
        "INVALID_PRODUCER",
    ),
    "producer id empty": ([b"Producer-Id: ", b"Producer-Epoch: 0", b"Producer-Seq: 0"], "INVALID_PRODUCER"),
    "key empty": ([b"Idempotency-Key: "], "INVALID_IDEMPOTENCY_KEY"),
    "key not ascii": ([b"Idempotency-Key: \xff"], "INVALID_IDEMPOTENCY_KEY"),
    "key of 60000": ([b"Idempotency-Key: " + b"k" * 60_000], "INVALID_IDEMPOTENCY_KEY"),
    "key twice": ([b"Idempotency-Key: a", b"Idempotency-Key: a"], "INVALID_IDEMPOTENCY_KEY"),
}


@pytest.mark.parametrize("name", MALFORMED_APPEND)
def test_a_malformed_header_of_an_append_is_refused(streams: Streams, name: str) -> None:
    lines, code = MALFORMED_APPEND[name]
    path = streams.new()
    refused(raw_append(streams.server, path, *lines), code)
    unharmed(streams, path)


@pytest.mark.parametrize(
    "value",
    [b"\xff", b"nonsense", b"/", b"application", b"application/", b"application/json2", b"json", b"*/*", b",", b";"],
    ids=repr,
)
def test_a_malformed_content_type_of_an_append_is_refused(streams: Streams, value: bytes) -> None:
    path = streams.new()
    answer = raw(streams.server, "POST", path, b"Content-Type: " + value, body=b"1")
    is_problem(answer)
    assert answer.status_code in (400, 409)
    unharmed(streams, path)


@pytest.mark.parametrize(
    ("method", "line"),
    [
        ("PUT", b"Stream-TTL: " + b"9" * 18),
        ("PUT", b"Stream-TTL: " + b"9" * 19),
        ("PUT", b"Stream-TTL: " + b"9" * 400),
        ("PUT", b"Stream-TTL: " + b"9" * 5000),
        ("PUT", b"Stream-TTL: 0"),
        ("PUT", b"Stream-TTL: 5\r\nStream-TTL: 6"),
        ("PUT", b"Stream-Expires-At: \xff"),
        ("PUT", b"Stream-Expires-At: 0000-01-01T00:00:00Z"),
        ("PUT", b"Stream-Expires-At: 0001-01-01T00:00:00+14:00"),
        ("PUT", b"Stream-Expires-At: 1969-12-31T23:59:59Z"),
        ("PUT", b"Stream-Expires-At: 9999-12-31T23:59:59-14:00"),
        ("PUT", b"Stream-Expires-At: 2016-12-31T23:59:60Z"),
        ("PUT", b"Stream-Expires-At: 2099-01-01T00:00:00." + b"1" * 5000 + b"Z"),
        ("PUT", b"Content-Type: text/plain; \xff"),
        ("PUT", b"Content-Type: " + b"a/b;" * 5000),
        ("PUT", b"Content-Type: a/b\r\nContent-Type: c/d"),
        ("POST", b"Stream-Seq: "),
        ("POST", b"Stream-Seq: \xff\xfe"),
        ("POST", b"Stream-Seq: " + b"z" * 30_000),
        ("POST", b"Stream-Seq: 1\r\nStream-Seq: 2"),
        ("POST", b"Stream-Closed: \xff"),
        ("POST", b"Stream-Closed: true\r\nStream-Closed: false"),
        ("POST", b"Producer-Id: \xff\r\nProducer-Epoch: 0\r\nProducer-Seq: 0"),
        ("POST", b"Producer-Id: " + b"p" * 30_000 + b"\r\nProducer-Epoch: 0\r\nProducer-Seq: 0"),
        ("POST", b"Producer-Id: p\r\nProducer-Id: q\r\nProducer-Epoch: 0\r\nProducer-Seq: 0"),
        ("GET", b"If-None-Match: \xff\xfe"),
        ("GET", b"If-None-Match: " + b'"a",' * 10_000),
        ("GET", b"Accept: \xff"),
        ("GET", b"Accept-Encoding: \xff;q=9"),
        ("GET", b"Range: bytes=5-1"),
        ("GET", b"Origin: \xff"),
        ("GET", b"Authorization: Bearer \xff"),
        ("GET", b"Host: \xff"),
        ("HEAD", b"Upgrade: websocket\r\nConnection: Upgrade"),
        ("GET", b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13"),
        ("GET", b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: x"),
        ("OPTIONS", b"Access-Control-Request-Method: \xff"),
        ("DELETE", b"Idempotency-Key: \xff"),
    ],
    ids=lambda value: repr(value[:60]),
)
def test_an_odd_header_is_no_fault(streams: Streams, method: str, line: bytes) -> None:
    path = streams.path() if method == "PUT" else streams.new()
    lines = [] if b"Content-Type" in line else [b"Content-Type: application/json"]
    body = b"1" if method in ("PUT", "POST") else None
    answer = raw(streams.server, method, path, *lines, line, body=body)
    assert answer.status_code < 500
    if answer.status_code >= 400:
        is_problem(answer)
    for method_after in ("HEAD", "GET", "DELETE"):
        assert streams.client.request(method_after, path).status_code < 500


ODD_QUERIES = {
    "cursor of 5000 digits": "offset=-1&live=long-poll&cursor=" + "9" * 5000,
    "cursor of other digits": "offset=-1&live=long-poll&cursor=%D9%A3",
    "cursor superscript": "offset=-1&live=long-poll&cursor=%C2%B2",
    "cursor twice": "offset=-1&live=long-poll&cursor=1&cursor=2",
    "cursor negative": "offset=-1&live=long-poll&cursor=-99999999999999999999",
    "live twice": "offset=-1&live=sse&live=long-poll",
    "live empty": "offset=-1&live=",
    "live not UTF-8": "offset=-1&live=%FF",
    "past the tail, long poll": "offset=9999999999999999_9999999999999999&live=long-poll",
    "past the tail, sse": "offset=9999999999999999_9999999999999999&live=sse",
    "inside a message": "offset=0000000000000000_0000000000000001",
    "broken escape": "offset=%",
    "broken escapes": "%zz=%&offset=-1",
    "only separators": "&&&===;;;",
    "very long": "x=" + "y" * 30_000,
    "many": "&".join(f"p{number}=1" for number in range(3000)),
    "not ascii": "offset=-1&\xff=\xfe",
}


@pytest.mark.parametrize("name", ODD_QUERIES)
def test_an_odd_query_is_no_fault(streams: Streams, name: str) -> None:
    path = streams.new(JSON, b'"long enough"')
    with Wire(streams.server) as wire:
        wire.send(request("GET", f"{path}?{ODD_QUERIES[name]}"))
        status = wire.status_or_end()
    assert status is not None
    assert status < 500


ODD_NAMES = {
    "NUL": "a%00b",
    "newline": "a%0Ab",
    "header injection": "a%0D%0AX-Evil:%201",
    "DEL": "a%7Fb",
    "broken escape": "a%zz",
    "half an escape": "a%4",
    "only a percent sign": "%",
    "empty segment": "a//b",
    "slash at the end": "a/",
    "slash in front": "/a",
    "only slashes": "///",
    "backslash": "a\\..\\b",
    "encoded backslash": "..%5Cb",
    "not ascii": "\xff\xfe",
    "semicolon": "a;b=c",
    "encoded control name": "%5F%5Fds/x",
    "encoded control slash": "__ds%2Fx",
    "quotes": 'a"b<c>',
    "markup": "%3Cscript%3E",
    "SQL": "a'%20OR%201=1--",
    "wildcards": "%25_*?",
    "emoji": "%F0%9F%94%91",
    "right to left": "%E2%80%AEabc",
}


@pytest.mark.parametrize("name", ODD_NAMES)
def test_an_odd_name_is_a_stream_or_is_refused(streams: Streams, name: str) -> None:
    path = ROOT + ODD_NAMES[name]
    answer = raw(streams.server, "PUT", path, b"Content-Type: text/plain", body=b"x")
    assert "X-Evil" not in answer.headers
    if answer.status_code != 201:
        assert 400 <= answer.status_code < 500
        assert raw(streams.server, "GET", path).status_code >= 400
        return
    assert raw(streams.server, "GET", path).content == b"x"
    assert raw(streams.server, "DELETE", path).status_code == 204
    assert raw(streams.server, "GET", path).status_code == 404


# -- HTTP itself ------------------------------------------------------------------------------------------------------


class Malformed(NamedTuple):
    """Bytes that are no proper request, and the statuses that say so; `%b` is the stream's path."""

    data: bytes
    statuses: tuple[int, ...] = (400,)
    may_end: bool = False
    """Whether closing without a word is an answer too."""


APPEND = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKED = APPEND + b"Transfer-Encoding: chunked\r\n\r\n"
TOO_MUCH = (400, 413, 414, 431)

MALFORMED: dict[str, Malformed] = {
    "garbage": Malformed(b"garbage\r\n\r\n"),
    "binary": Malformed(bytes(range(1, 128)) + b"\r\n\r\n"),
    "TLS hello": Malformed(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 50),
    "HTTP/2 preface": Malformed(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (400, 404, 405, 505)),
    "no version": Malformed(b"POST %b\r\n\r\n"),
    "unknown version": Malformed(b"POST %b HTTP/9.9\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n1", (400, 505)),
    "lower-case version": Malformed(b"POST %b http/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n1"),
    "lower-case method": Malformed(
        b"post %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n1", (400, 405, 501)
    ),
    "mixed-case method": Malformed(b"Get %b HTTP/1.1\r\nHost: localhost\r\n\r\n", (400, 405, 501)),
    "unknown method": Malformed(b"BREW %b HTTP/1.1\r\nHost: localhost\r\n\r\n", (400, 405, 501)),
    "long method": Malformed(b"A" * 5000 + b" %b HTTP/1.1\r\nHost: localhost\r\n\r\n", (400, 405, 431, 501)),
    "no target": Malformed(b"GET HTTP/1.1\r\nHost: localhost\r\n\r\n", (400, 404)),
    "target without a slash": Malformed(b"GET v1/stream/x HTTP/1.1\r\nHost: localhost\r\n\r\n", (400, 404)),
    "target of a proxy": Malformed(b"CONNECT test:443 HTTP/1.1\r\nHost: localhost\r\n\r\n", (400, 404, 405, 501)),
    "header without a colon": Malformed(APPEND + b"nonsense\r\nContent-Length: 1\r\n\r\n1"),
    "header without a name": Malformed(APPEND + b": nonsense\r\nContent-Length: 1\r\n\r\n1"),
    "space in a name": Malformed(APPEND + b"Bad Name: 1\r\nContent-Length: 1\r\n\r\n1"),
    "space after a name": Malformed(APPEND + b"Stream-Closed : true\r\nContent-Length: 1\r\n\r\n1"),
    "NUL in a name": Malformed(APPEND + b"Bad\0Name: 1\r\nContent-Length: 1\r\n\r\n1"),
    "NUL in a value": Malformed(APPEND + b"X-Other: a\0b\r\nContent-Length: 1\r\n\r\n1"),
    "NUL in a Stream-Seq": Malformed(APPEND + b"Stream-Seq: a\0b\r\nContent-Length: 1\r\n\r\n1"),
    "bare CR in a value": Malformed(APPEND + b"X-Other: a\rb\r\nContent-Length: 1\r\n\r\n1"),
    "length not a number": Malformed(APPEND + b"Content-Length: abc\r\n\r\n1"),
    "length negative": Malformed(APPEND + b"Content-Length: -1\r\n\r\n1"),
    "length with a sign": Malformed(APPEND + b"Content-Length: +1\r\n\r\n1"),
    "length with a point": Malformed(APPEND + b"Content-Length: 1.0\r\n\r\n1"),
    "length hexadecimal": Malformed(APPEND + b"Content-Length: 0x1\r\n\r\n1"),
    "length beyond 64 bits": Malformed(APPEND + b"Content-Length: 99999999999999999999999\r\n\r\n1", (400, 413)),
    "two lengths": Malformed(APPEND + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n12"),
    "length and chunks": Malformed(
        APPEND + b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n1\r\n0\r\n\r\n"
    ),
    "chunks and length": Malformed(
        APPEND + b"Transfer-Encoding: chunked\r\nContent-Length: 11\r\n\r\n1\r\n1\r\n0\r\n\r\n"
    ),
    "another transfer coding": Malformed(APPEND + b"Transfer-Encoding: gzip\r\n\r\n1", (400, 501)),
    "chunked is not the last": Malformed(
        APPEND + b"Transfer-Encoding: chunked, gzip\r\n\r\n1\r\n1\r\n0\r\n\r\n", (400, 501)
    ),
    "nearly chunked": Malformed(APPEND + b"Transfer-Encoding: xchunked\r\n\r\n1\r\n1\r\n0\r\n\r\n", (400, 501)),
    "chunk size not a number": Malformed(CHUNKED + b"zz\r\n1\r\n0\r\n\r\n", may_end=True),
    "chunk size empty": Malformed(CHUNKED + b"\r\n1\r\n0\r\n\r\n", may_end=True),
    "chunk size negative": Malformed(CHUNKED + b"-1\r\n1\r\n0\r\n\r\n", may_end=True),
    "chunk size with a prefix": Malformed(CHUNKED + b"0x1\r\n1\r\n0\r\n\r\n", may_end=True),
    "chunk size beyond 64 bits": Malformed(CHUNKED + b"fffffffffffffffff\r\n1\r\n", (400, 413), may_end=True),
    "chunk longer than its size": Malformed(CHUNKED + b"1\r\n11\r\n0\r\n\r\n", may_end=True),
    "second chunk bad": Malformed(CHUNKED + b"1\r\n1\r\nxyz\r\n\r\n", may_end=True),
    "huge header": Malformed(APPEND + b"X-Huge: " + b"x" * 70_000 + b"\r\nContent-Length: 1\r\n\r\n1", TOO_MUCH),
    "huge header name": Malformed(APPEND + b"X" * 70_000 + b": 1\r\nContent-Length: 1\r\n\r\n1", TOO_MUCH),
    "huge headers": Malformed(
        APPEND + b"".join(b"X-%d: %b\r\n" % (n, b"x" * 1000) for n in range(70)) + b"Content-Length: 1\r\n\r\n1",
        TOO_MUCH,
    ),
    "headers without end": Malformed(APPEND + b"X-Huge: " + b"x" * 2_000_000, TOO_MUCH),
    "many headers": Malformed(
        APPEND + b"".join(b"X-%d: 1\r\n" % number for number in range(150)) + b"Content-Length: 1\r\n\r\n1", TOO_MUCH
    ),
    "long target": Malformed(b"GET %b" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", TOO_MUCH),
    "long query": Malformed(b"GET %b?" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", TOO_MUCH),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_http_is_refused(streams: Streams, name: str) -> None:
    data, statuses, may_end = MALFORMED[name]
    path = streams.new()
    # Less than the half minute after which the server gives up on a request that does not get on.
    with Wire(streams.server, patience_seconds=20.0) as wire:
        wire.send(data.replace(b"%b", path.encode()))
        answer = wire.answer_or_end() if may_end else wire.answer()
        if answer is not None:
            is_problem(answer)
            assert answer.status_code in statuses
    unharmed(streams, path)


CUT_OFF = {
    "length": APPEND + b"Content-Length: 100\r\n\r\n[1,2,3]",
    "length, nothing sent": APPEND + b"Content-Length: 100\r\n\r\n",
    "length, one byte missing": APPEND + b"Content-Length: 8\r\n\r\n[1,2,3]",
    "in a chunk": CHUNKED + b"10\r\n[1,2,3]",
    "after a chunk": CHUNKED + b"7\r\n[1,2,3]\r\n",
    "before the last empty line": CHUNKED + b"7\r\n[1,2,3]\r\n0\r\n",
    "in a chunk's size": CHUNKED + b"7",
    "with a close": APPEND + b"Stream-Closed: true\r\nContent-Length: 100\r\n\r\n[1,2,3]",
    "in the headers": APPEND + b"Content-Le",
    "in the request line": b"POST /v1/str",
}


@pytest.mark.parametrize("end", ["half-close", "close", "reset"])
@pytest.mark.parametrize("name", CUT_OFF)
def test_a_request_cut_off_stores_nothing(streams: Streams, name: str, end: str) -> None:
    path = streams.new()
    with Wire(streams.server) as wire:
        wire.send(CUT_OFF[name].replace(b"%b", path.encode()))
        if end == "half-close":
            wire.finish()
            answer = wire.answer_or_end()
            if answer is not None:
                is_problem(answer)
        elif end == "reset":
            wire.reset()
    unharmed(streams, path)
    assert streams.messages(path) == [1]


def test_a_hidden_request_is_not_carried_out(streams: Streams) -> None:
    path, hidden = streams.new(), streams.path()
    smuggled = request("PUT", hidden, b"Content-Length: 0")
    data = APPEND.replace(b"%b", path.encode())
    data += b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" % (5 + len(smuggled))
    with Wire(streams.server) as wire:
        wire.send(data + smuggled)
        is_problem(wire.answer())
        assert wire.closed()
    assert streams.head(hidden).status_code == 404
    unharmed(streams, path)


def test_nothing_after_a_malformed_request_is_carried_out(streams: Streams) -> None:
    path = streams.new()
    append = request("POST", path, b"Content-Type: application/json", body=b"1")
    with Wire(streams.server) as wire:
        wire.send(append)
        first = wire.answer()
        wire.send(b"nonsense\r\n\r\n" + append)
        assert [first.status_code, wire.answer().status_code] == [204, 400]
        assert wire.closed()
    assert streams.messages(path) == [1]


@pytest.mark.parametrize("pause_seconds", [0.0, 0.0005, 0.001], ids=["at once", "half a millisecond", "a millisecond"])
def test_a_malformed_request_does_not_take_the_answer_of_the_one_before(streams: Streams, pause_seconds: float) -> None:
    """Else a client is told "refused, nothing stored" of an append that was stored."""
    for _ in range(10):
        path = streams.new()
        with Wire(streams.server) as wire:
            wire.send(request("POST", path, b"Content-Type: application/json", body=b"1"))
            time.sleep(pause_seconds)
            wire.send(b"nonsense\r\n\r\n")
            answers = list(iter(wire.answer_or_end, None))
        stored = streams.messages(path)
        assert ([answer.status_code for answer in answers], stored) == ([204, 400], [1])


def test_a_broken_body_does_not_take_the_answer_of_the_append_before(tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data", env={"SEMEL_COMMIT_DELAY_MS": "200"}) as server:
        url = f"{server.url}/v1/stream/s"
        httpx.put(url, headers={"Content-Type": JSON}, timeout=30).raise_for_status()
        good = request("POST", "/v1/stream/s", b"Content-Type: application/json", body=b"1")
        head = request("POST", "/v1/stream/s", b"Content-Type: application/json", b"Transfer-Encoding: chunked")
        with Wire(server) as wire:
            wire.send(good + head + b"zz\r\n")
            answers = list(iter(wire.answer_or_end, None))
        assert ([answer.status_code for answer in answers], httpx.get(url).json()) == ([204, 400], [1])


UPGRADE = (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA")


@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_a_body_behind_an_upgrade_is_refused_and_not_lost(streams: Streams, method: str) -> None:
    """The parser throws such a body away: the write would be answered, and nothing of it stored."""
    path = streams.new() if method == "POST" else streams.path()
    extra = (b"Content-Type: application/json", b"Stream-Closed: true", b"Idempotency-Key: k")
    with Wire(streams.server) as wire:
        wire.send(request(method, path, *extra, *UPGRADE, body=b"1"))
        refused(wire.answer(), "INVALID_REQUEST")
        assert wire.closed()
    if method == "POST":
        unharmed(streams, path)
    else:
        assert streams.client.head(path).status_code == 404


def test_a_read_that_asks_for_an_upgrade_is_answered_and_ends_the_connection(streams: Streams) -> None:
    path = streams.new(JSON, b"1")
    with Wire(streams.server) as wire:
        wire.send(request("GET", path, *UPGRADE))
        answer = wire.answer()
        assert (answer.status_code, answer.content) == (200, b"[1]")
        assert wire.closed()


def test_pipelined_requests_are_answered_in_order(streams: Streams) -> None:
    path, missing = streams.path(), streams.path()
    json_type = b"Content-Type: application/json"
    requests = [
        ("PUT", 201, request("PUT", path, json_type, body=b"")),
        *[("POST", 204, request("POST", path, json_type, body=b"%d" % n)) for n in range(20)],
        ("POST", 400, request("POST", path, json_type, body=b"{")),
        ("GET", 404, request("GET", missing)),
        ("HEAD", 200, request("HEAD", path)),
        ("GET", 204, request("GET", path + "?live=long-poll&offset=now")),
        ("POST", 204, request("POST", path, json_type, b"Stream-Closed: true", body=b"20")),
        ("GET", 200, request("GET", path)),
        ("DELETE", 204, request("DELETE", path)),
        ("GET", 404, request("GET", path)),
    ]
    with Wire(streams.server) as wire:
        wire.send(b"".join(data for _, _, data in requests))
        answers = [wire.answer(method) for method, _, _ in requests]
    assert [answer.status_code for answer in answers] == [status for _, status, _ in requests]
    assert answers[-3].json() == list(range(21))


def test_a_request_in_single_bytes_is_one_request(streams: Streams) -> None:
    path = streams.new()
    with Wire(streams.server) as wire:
        for octet in request("POST", path, b"Content-Type: application/json", body=b"[1,2]"):
            wire.send(bytes([octet]))
        assert wire.answer().status_code == 204
    assert streams.messages(path) == [1, 2]


def test_chunks_may_have_extensions_and_trailers(streams: Streams) -> None:
    path = streams.new()
    with Wire(streams.server) as wire:
        wire.send(CHUNKED.replace(b"%b", path.encode()))
        wire.send(b"3;name=value\r\n[1,\r\n2 ; q\r\n2]\r\n0\r\nX-Trailer: 1\r\nStream-Closed: true\r\n\r\n")
        answer = wire.answer()
    if answer.status_code == 204:
        assert streams.messages(path) == [1, 2]
        assert "Stream-Closed" not in streams.head(path).headers  # a trailer is no header
    else:
        is_problem(answer)
        unharmed(streams, path)


@pytest.mark.parametrize("keep", [b"", b"Connection: keep-alive\r\n"], ids=["closing", "keep-alive"])
def test_http_1_0(streams: Streams, keep: bytes) -> None:
    path = streams.new(JSON, b"1")
    for query, body in (("", b"[1]"), ("?live=long-poll&offset=-1", b"[1]")):
        with Wire(streams.server) as wire:
            wire.send(b"GET %b HTTP/1.0\r\n%b\r\n" % ((path + query).encode(), keep))
            answer = wire.answer()
        assert (answer.status_code, answer.content) == (200, body)
        assert "Transfer-Encoding" not in answer.headers
    with Wire(streams.server) as wire:
        head = b"POST %b HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: 1\r\n%b\r\n2"
        wire.send(head % (path.encode(), keep))
        assert wire.answer().status_code == 204
    assert streams.messages(path) == [1, 2]


def test_http_1_0_gets_no_event_stream(streams: Streams) -> None:
    """It knows no chunks, and the frames would stand between chunk sizes."""
    path = streams.new(JSON, b"1")
    streams.close(path)
    with Wire(streams.server) as wire:
        wire.send(b"GET %b?live=sse&offset=-1 HTTP/1.0\r\n\r\n" % path.encode())
        refused(wire.answer(), "INVALID_REQUEST")


def test_expect_100_continue(streams: Streams) -> None:
    path = streams.new()
    head = request("POST", path, b"Content-Type: application/json", b"Content-Length: 5", b"Expect: 100-continue")
    with Wire(streams.server) as wire:
        wire.send(head)
        assert wire.answer().status_code == 100
        wire.send(b"[1,2]")
        assert wire.answer().status_code == 204
    assert streams.messages(path) == [1, 2]


def test_expect_100_continue_with_a_body_over_the_limit(streams: Streams) -> None:
    path, body = streams.new(), b"1" * (BODY_LIMIT + 1)
    length = b"Content-Length: %d" % len(body)
    with Wire(streams.server) as wire:
        wire.send(request("POST", path, b"Content-Type: application/json", length, b"Expect: 100-continue"))
        answer = wire.answer()
        if answer.status_code == 100:  # HTTP lets a server say no only after it has seen the body
            wire.send(body)
            answer = wire.answer()
        refused(answer, "PAYLOAD_TOO_LARGE")
    unharmed(streams, path)


def test_a_body_of_the_limit_is_accepted(streams: Streams) -> None:
    path = streams.new(TEXT)
    assert streams.post(path, b"x" * BODY_LIMIT, content_type=TEXT).status_code == 204
    assert streams.post(path, iter([b"y" * 1000, b"y" * (BODY_LIMIT - 1000)]), content_type=TEXT).status_code == 204
    assert len(streams.content(path)) == 2 * BODY_LIMIT


def framed(body: bytes, framing: str) -> bytes:
    if framing == "length":
        return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    pieces = [body[start : start + 5000] for start in range(0, len(body), 5000)]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


@pytest.mark.parametrize("method", ["POST", "PUT"])
@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("size", [BODY_LIMIT + 1, 3 * BODY_LIMIT, 2_000_000])
def test_a_body_over_the_limit_is_refused_and_the_answer_arrives(
    streams: Streams, size: int, framing: str, method: str
) -> None:
    path = streams.path() if method == "PUT" else streams.new(TEXT)
    head = b"%b %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n" % (method.encode(), path.encode())
    with Wire(streams.server) as wire:
        wire.send(head + framed(b"x" * size, framing))
        answer = wire.answer()
        refused(answer, "PAYLOAD_TOO_LARGE")
        if answer.headers.get("Connection") != "close":
            wire.send(request("HEAD", path))
            again = wire.answer_or_end("HEAD")
            assert again is None or again.status_code in (200, 404)
    if method == "PUT":
        assert streams.head(path).status_code == 404
    else:
        assert streams.content(path) == b""


# -- Fuzz -------------------------------------------------------------------------------------------------------------

FUZZ = settings(max_examples=150, deadline=None, database=None, derandomize=True)
HEADER_NAMES = (
    *("Content-Type", "Stream-TTL", "Stream-Expires-At", "Stream-Seq", "Stream-Closed", "Producer-Id"),
    *("Producer-Epoch", "Producer-Seq", KEY, "If-None-Match", "Authorization", "Accept", "Accept-Encoding"),
    *("Origin", "Access-Control-Request-Method", "Access-Control-Request-Headers", "X-Request-Id", "Range", "Cookie"),
)
VALUES = st.one_of(
    st.binary(max_size=40),
    st.text(max_size=20).map(str.encode),
    st.text('0123456789-+.eE_:TZ \t"\\,;/*%', max_size=40).map(str.encode),
    st.sampled_from([b"true", b"application/json", b"text/plain", b"0", b"1", b'"k"', b"2099-01-01T00:00:00Z"]),
).map(lambda value: value.translate(None, b"\r\n\0"))
METHODS = st.sampled_from(["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
BODIES = st.one_of(
    st.binary(max_size=40),
    st.text('[]{}",:\\u0123456789eE+-.truefalsn \n\t', max_size=40).map(str.encode),
)


def status_of(streams: Streams, data: bytes, *, finish: bool = False) -> int | None:
    with Wire(streams.server) as wire:
        wire.send(data)
        if finish:
            wire.finish()
        return wire.status_or_end()


@FUZZ
@given(method=METHODS, headers=st.lists(st.tuples(st.sampled_from(HEADER_NAMES), VALUES), max_size=5), body=BODIES)
def test_fuzz_of_headers(streams: Streams, method: str, headers: list[tuple[str, bytes]], body: bytes) -> None:
    lines = [name.encode() + b": " + value for name, value in headers]
    status = status_of(streams, request(method, ROOT + "fuzz-headers", *lines, body=body))
    assert status is not None
    assert status < 500


@FUZZ
@given(
    method=METHODS,
    name=st.one_of(
        st.text("./%2Ffe_a-\\~", max_size=30),
        st.binary(max_size=20).map(lambda octets: "".join(f"%{octet:02X}" for octet in octets)),
        st.text(st.characters(min_codepoint=0x21, max_codepoint=0xFF, exclude_characters="?#\x7f"), max_size=20),
    ),
    query=st.one_of(
        st.text(st.characters(min_codepoint=0x21, max_codepoint=0xFF, exclude_characters="#\x7f"), max_size=30),
        st.lists(
            st.tuples(st.sampled_from(["offset", "live", "cursor"]), st.text("-1now0_9%2Fsepl&=", max_size=35)),
            max_size=4,
        ).map(lambda pairs: "&".join(f"{name}={value}" for name, value in pairs)),
    ),
)
def test_fuzz_of_targets(streams: Streams, method: str, name: str, query: str) -> None:
    status = status_of(streams, request(method, f"{ROOT}{name}?{query}", body=b""))
    assert status is not None
    assert status < 500


@FUZZ
@given(
    offset=st.one_of(st.from_regex(r"[0-9]{16}_[0-9]{16}", fullmatch=True), st.sampled_from(["-1", "now"]), st.text()),
    live=st.one_of(st.none(), st.sampled_from(["long-poll", "sse"]), st.text(max_size=5)),
    cursor=st.one_of(st.none(), st.integers().map(str), st.text(max_size=10)),
)
def test_fuzz_of_reads(streams: Streams, offset: str, live: str | None, cursor: str | None) -> None:
    path = ROOT + "fuzz-reads"
    streams.put(path, JSON, b'[1,"two",{"three":4}]')
    query = {"offset": offset, "live": live, "cursor": cursor}
    target = httpx.URL(path, params={name: value for name, value in query.items() if value is not None})
    status = status_of(streams, request("GET", str(target)))
    assert status is not None
    assert status < 500


def strict(body: bytes) -> Any:
    """The value of a JSON text by the book, or ValueError."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    return json.loads(body.decode(), parse_constant=refuse)


@FUZZ
@given(body=BODIES.filter(bool))
def test_fuzz_of_json_agrees_with_a_strict_parser(streams: Streams, body: bytes) -> None:
    path = streams.new()
    answer = streams.post(path, body)
    try:
        value = strict(body)
    except ValueError:
        refused(answer, "INVALID_JSON")
        unharmed(streams, path)
        return
    messages = value if isinstance(value, list) else [value]
    assert answer.status_code == (204 if messages else 400)
    assert strict(streams.get(path).content) == messages


@FUZZ
@given(
    st.lists(
        st.one_of(st.binary(max_size=60), st.sampled_from([b"GET ", b" HTTP/1.1\r\n", b"\r\n\r\n", b": "])), max_size=8
    )
)
def test_fuzz_of_bytes(streams: Streams, pieces: list[bytes]) -> None:
    status = status_of(streams, b"".join(pieces), finish=True)
    assert status is None or status < 500


# -- Credentials ------------------------------------------------------------------------------------------------------

TOKENS: dict[str, tuple[str, list[str], list[str]]] = {
    "both": ("secret-of-both-4f1c", ["read", "write"], ["streams:orders/*"]),
    "reader": ("secret-of-reader-9a2e", ["read"], ["streams:orders/*"]),
    "writer": ("secret-of-writer-77b0", ["write"], ["streams:orders/*"]),
    "elsewhere": ("secret-of-elsewhere-c3d8", ["read", "write"], ["streams:invoices/*"]),
}
UNKNOWN = "secret-that-is-unknown-e5f6"


def token_file(folder: Path) -> Path:
    lines = []
    for name, (secret, roles, scopes) in TOKENS.items():
        digest = hashlib.sha256(secret.encode()).hexdigest()
        lines += ["[[token]]", f"name = {json.dumps(name)}", f'sha256 = "{digest}"']
        lines += [f"roles = {json.dumps(roles)}", f"scopes = {json.dumps(scopes)}", ""]
    file = folder / "tokens.toml"
    file.write_text("\n".join(lines))
    return file


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, store_kind: str) -> Iterator[Streams]:
    folder = tmp_path_factory.mktemp("guarded")
    with serving(
        folder / "data", TOKENS=str(token_file(folder)), LOG_LEVEL="debug", MAX_BODY_BYTES=str(BODY_LIMIT)
    ) as served:
        yield served


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKENS[name][0]}"}


def orders(guarded: Streams) -> str:
    """A stream with one message in the scope of most tokens."""
    path = guarded.path("orders/test")
    assert guarded.put(path, JSON, b"1", bearer("both")).status_code == 201
    return path


def ask(guarded: Streams, method: str, path: str, headers: Mapping[str, str]) -> httpx.Response:
    content = b"2" if method in ("PUT", "POST", "PATCH") else None
    return guarded.client.request(method, path, headers={"Content-Type": JSON} | dict(headers), content=content)


NO_CREDENTIAL: dict[str, Mapping[str, str]] = {
    "missing": {},
    "empty": {"Authorization": ""},
    "no token": {"Authorization": "Bearer"},
    "unknown": {"Authorization": f"Bearer {UNKNOWN}"},
    "a token's digest": {"Authorization": f"Bearer {hashlib.sha256(TOKENS['both'][0].encode()).hexdigest()}"},
    "a token's name": {"Authorization": "Bearer both"},
    "part of a token": {"Authorization": f"Bearer {TOKENS['both'][0][:-1]}"},
    "more than a token": {"Authorization": f"Bearer {TOKENS['both'][0]}x"},
    "two tokens": {"Authorization": f"Bearer {TOKENS['both'][0]}, {TOKENS['reader'][0]}"},
    "letters of a token": {"Authorization": f"Bearer {TOKENS['both'][0].upper()}"},
    "another scheme": {"Authorization": f"Basic {TOKENS['both'][0]}"},
    "no scheme": {"Authorization": TOKENS["both"][0]},
    "in another header": {"X-Authorization": f"Bearer {TOKENS['both'][0]}"},
}


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE"])
@pytest.mark.parametrize("name", NO_CREDENTIAL)
def test_without_a_known_credential_nothing_is_told_or_done(guarded: Streams, name: str, method: str) -> None:
    path = orders(guarded)
    for target in (path, guarded.path("orders/missing"), guarded.path("elsewhere")):
        answer = ask(guarded, method, target, NO_CREDENTIAL[name])
        if method == "HEAD":
            assert answer.status_code == 401
        else:
            refused(answer, "UNAUTHORIZED")
    assert guarded.get(path, bearer("reader")).json() == [1]


def test_a_token_in_the_query_is_no_credential(guarded: Streams) -> None:
    path = orders(guarded)
    for name in ("token", "access_token", "authorization"):
        refused(guarded.get(path, **{name: TOKENS["both"][0]}), "UNAUTHORIZED")


ALLOWED: dict[tuple[str, str], int] = {
    ("both", "GET"): 200,
    ("both", "HEAD"): 200,
    ("both", "POST"): 204,
    ("both", "PUT"): 200,
    ("both", "DELETE"): 204,
    ("reader", "GET"): 200,
    ("reader", "HEAD"): 200,
    ("reader", "POST"): 403,
    ("reader", "PUT"): 403,
    ("reader", "DELETE"): 403,
    ("writer", "GET"): 403,
    ("writer", "POST"): 204,
    ("writer", "PUT"): 200,
    ("writer", "DELETE"): 204,
    ("elsewhere", "GET"): 403,
    ("elsewhere", "HEAD"): 403,
    ("elsewhere", "POST"): 403,
    ("elsewhere", "PUT"): 403,
    ("elsewhere", "DELETE"): 403,
}


@pytest.mark.parametrize(("token", "method"), ALLOWED)
def test_a_known_credential_may_what_its_role_and_scope_say(guarded: Streams, token: str, method: str) -> None:
    status = ALLOWED[token, method]
    path = orders(guarded)
    answer = ask(guarded, method, path, bearer(token))
    assert answer.status_code == status
    if status == 403:
        if method != "HEAD":
            refused(answer, "FORBIDDEN")
        assert guarded.get(path, bearer("both")).json() == [1]
        # A stream that is not there is refused in the same words: nobody can find out which streams exist.
        missing = ask(guarded, method, guarded.path("orders/missing"), bearer(token))
        assert missing.status_code == 403


@pytest.mark.parametrize("mode", ["long-poll", "sse"])
@pytest.mark.parametrize("token", ["writer", "elsewhere"])
def test_live_reads_need_the_right_too(guarded: Streams, token: str, mode: str) -> None:
    refused(guarded.get(orders(guarded), bearer(token), live=mode, offset="-1"), "FORBIDDEN")


SCOPE_ESCAPES = {
    "another name": ("invoices/1", (403,)),
    "a longer prefix": ("orders2/1", (403,)),
    "other letters": ("Orders/1", (403,)),
    "dots": ("orders/../invoices/1", (400, 403)),
    "encoded dots": ("orders/%2e%2e/invoices/1", (400, 403)),
    "encoded slashes and dots": ("orders%2F..%2Finvoices%2F1", (400, 403)),
    "encoded twice": ("orders%252F1", (403,)),
    "reserved": ("__ds/unknown", (401, 403, 404)),
}


@pytest.mark.parametrize("name", SCOPE_ESCAPES)
def test_a_scope_cannot_be_left(guarded: Streams, name: str) -> None:
    target, statuses = SCOPE_ESCAPES[name]
    authorization = f"Authorization: Bearer {TOKENS['both'][0]}".encode()
    answer = raw(guarded.server, "PUT", ROOT + target, b"Content-Type: application/json", authorization, body=b"1")
    assert answer.status_code in statuses


@pytest.mark.parametrize("spelling", ["orders%2F{}", "%6Frders/{}", "orders/%{:02X}"], ids=["slash", "letter", "name"])
def test_a_scope_is_judged_on_the_decoded_name(guarded: Streams, spelling: str) -> None:
    plain = ROOT + "orders/" + "z"
    assert guarded.put(plain, JSON, b"1", bearer("both")).status_code in (200, 201)
    name = spelling.format(ord("z")) if ":" in spelling else spelling.format("z")
    authorization = f"Authorization: Bearer {TOKENS['reader'][0]}".encode()
    answer = raw(guarded.server, "GET", ROOT + name, authorization)
    assert (answer.status_code, answer.json()) == (200, [1])


EVERYTHING_WRONG: dict[str, tuple[str, bytes, Mapping[str, str]]] = {
    "header syntax": ("POST", b"1", producer("p", "x", 0) | {KEY: "k" * 300}),
    "no body, no type": ("POST", b"", {}),
    "too large": ("POST", b"1" * (BODY_LIMIT + 1), {"Content-Type": JSON}),
    "type": ("POST", b"1", {"Content-Type": TEXT}),
    "JSON": ("POST", b"{", {"Content-Type": JSON}),
    "expiry": ("PUT", b"", {"Stream-TTL": "x"}),
    "configuration": ("PUT", b"", {"Content-Type": TEXT}),
    "method": ("PATCH", b"1", {}),
}


@pytest.mark.parametrize("credential", ["none", "reader", "elsewhere"])
@pytest.mark.parametrize("name", EVERYTHING_WRONG)
def test_the_credential_is_judged_before_anything_else(guarded: Streams, name: str, credential: str) -> None:
    method, body, headers = EVERYTHING_WRONG[name]
    sent = dict(headers) | ({} if credential == "none" else bearer(credential))
    for path in (orders(guarded), guarded.path("orders/missing")):
        answer = guarded.client.request(method, path, headers=sent, content=body)
        if credential == "none":
            refused(answer, "UNAUTHORIZED")
        elif name == "method":  # no role says who may do what cannot be done
            assert answer.status_code in (403, 405)
        else:
            refused(answer, "FORBIDDEN")


def test_a_bad_offset_is_not_looked_at_without_the_right(guarded: Streams) -> None:
    path = orders(guarded)
    refused(guarded.get(path, offset="bad"), "UNAUTHORIZED")
    refused(guarded.get(path, bearer("elsewhere"), offset="bad"), "FORBIDDEN")
    refused(guarded.get(path, bearer("reader"), offset="bad"), "INVALID_OFFSET")


def test_a_refused_caller_uses_up_no_key_and_no_sequence(guarded: Streams) -> None:
    path = orders(guarded)
    headers = {KEY: "k", "Content-Type": JSON} | producer("p", 0, 0)
    refused(guarded.client.post(path, headers=headers, content=b"2"), "UNAUTHORIZED")
    refused(guarded.client.post(path, headers=headers | bearer("reader"), content=b"2"), "FORBIDDEN")
    answer = guarded.client.post(path, headers=headers | bearer("writer"), content=b"3")
    assert (answer.status_code, "Idempotency-Replayed" in answer.headers) == (200, False)
    # And a known key is replayed only to those who may write.
    refused(guarded.client.post(path, headers=headers, content=b"3"), "UNAUTHORIZED")
    refused(guarded.client.post(path, headers=headers | bearer("reader"), content=b"3"), "FORBIDDEN")


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer nonsense"}], ids=["none", "unknown"])
def test_a_preflight_needs_no_credential(guarded: Streams, headers: Mapping[str, str]) -> None:
    asked = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
    for path in (orders(guarded), guarded.path("orders/missing")):
        answer = guarded.client.options(path, headers=asked | dict(headers))
        assert answer.status_code in (200, 204)
        assert "authorization" in answer.headers["Access-Control-Allow-Headers"].lower()


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer nonsense"}], ids=["missing", "unknown"])
def test_a_refused_caller_in_a_browser_learns_why(guarded: Streams, headers: Mapping[str, str]) -> None:
    answer = guarded.get(orders(guarded), {"Origin": "https://app.example"} | dict(headers))
    assert answer.headers["Access-Control-Allow-Origin"] == "https://app.example"
    assert answer.headers["Vary"] == "Origin"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cross-Origin-Resource-Policy"]
    assert answer.headers["X-Request-Id"]


def test_no_secret_and_no_key_reaches_the_log(guarded: Streams) -> None:
    path = orders(guarded)
    keys = ["key-to-be-kept-secret-1a2b", "key-to-be-kept-secret-3c4d", "key-too-long-5e6f" * 20]
    for credential in (bearer("both"), bearer("reader"), {"Authorization": f"Bearer {UNKNOWN}"}):
        for key in keys:
            for body in (b"1", b"1", b"2", b"{"):
                guarded.client.post(path, headers=credential | {KEY: key, "Content-Type": JSON}, content=body)
        guarded.get(path, credential, token=UNKNOWN)
    bad = [b"Authorization: Bearer " + UNKNOWN.encode(), b"Idempotency-Key: " + keys[0].encode() + b"\0"]
    raw(guarded.server, "POST", path, *bad, body=b"1")
    log = log_of(guarded.server)
    secrets = [secret for secret, _, _ in TOKENS.values()] + [UNKNOWN]
    digests = [hashlib.sha256(secret.encode()).hexdigest() for secret in secrets]
    assert [word for word in [*secrets, *digests, *keys, "5e6f"] if word in log] == []


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
@pytest.mark.parametrize("way", ["option", "environment"])
def test_listening_beyond_loopback_without_tokens_is_refused(tmp_path: Path, host: str, way: str) -> None:
    command = [sys.executable, "-m", "semel", "serve", "--port", "0", "--data", str(tmp_path / "data")]
    command += ["--host", host] if way == "option" else []
    env = {"SEMEL_HOST": host} if way == "environment" else {}
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode != 0
    said = ended.stdout + ended.stderr
    assert "Traceback" not in said
    assert "token" in said.lower()
    assert host in said or "loopback" in said.lower()
    assert "Semel is listening" not in said
