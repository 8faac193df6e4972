"""The streams protocol, where the official suite does not look or looks only in passing.

Sections of the contract: 3 create, 4 append and close, 5 content, 7 offsets, 8 reading, 9 caching, 10 expiry, 12
headers, names and errors. Keys and producers have tests of their own.
"""

from __future__ import annotations

import base64
import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

import httpx
import pytest

from tests.harness.together import LateError, at_once, eventually, in_time, unless_held_up, unless_late
from tests.streams.wire import (
    CLOSED,
    JSON,
    KEY,
    OCTETS,
    ROOT,
    START,
    TEXT,
    TOO_FAR,
    Event,
    Streams,
    Touch,
    Wire,
    alive_after,
    is_problem,
    offset_of,
    producer,
    raw,
    refused,
    request,
    serving,
    window,
)

BODY_LIMIT = 65_536
PAGE_BYTES = 1_000


@pytest.fixture(scope="module")
def streams(tmp_path_factory: pytest.TempPathFactory, store_kind: str) -> Iterator[Streams]:
    """A server whose long polls are short and whose pages are small."""
    settings = {"MAX_BODY_BYTES": str(BODY_LIMIT), "STREAMS_PAGE_BYTES": str(PAGE_BYTES)}
    with serving(tmp_path_factory.mktemp("protocol") / "data", STREAMS_LONG_POLL_MS="400", **settings) as served:
        yield served


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory, store_kind: str) -> Iterator[Streams]:
    """A server whose long polls outlast the tests: what ends there was ended by something else."""
    data = tmp_path_factory.mktemp("patient") / "data"
    with serving(data, STREAMS_LONG_POLL_MS="60000", SWEEP_INTERVAL_MS="100", SHUTDOWN_MS="1000") as served:
        yield served


def closed(answer: httpx.Response) -> bool:
    value = answer.headers.get("Stream-Closed")
    assert value in (None, "true")
    return value is not None


def up_to_date(answer: httpx.Response) -> bool:
    value = answer.headers.get("Stream-Up-To-Date")
    assert value in (None, "true")
    return value is not None


# -- 3. Create --------------------------------------------------------------------------------------------------------


def test_a_new_stream_is_located_and_described(streams: Streams) -> None:
    path = streams.path()
    answer = streams.put(path, TEXT)
    assert (answer.status_code, answer.headers["Content-Type"], offset_of(answer)) == (201, TEXT, START)
    assert answer.headers["Location"] == streams.server.url + path
    assert not closed(answer)
    assert streams.get(answer.headers["Location"]).status_code == 200


def test_the_location_ends_in_the_path_as_it_was_sent(streams: Streams) -> None:
    path = streams.path("a%2Fb%20%C3%A9/c")
    answer = raw(streams.server, "PUT", path, b"Content-Type: text/plain", body=b"")
    assert answer.status_code == 201
    location: str = answer.headers["Location"]
    assert location.endswith(path)


def test_a_stream_confirmed_has_no_location_and_ignores_the_body(streams: Streams) -> None:
    path = streams.path()
    first = streams.put(path, JSON, b"[1,2]")
    again = streams.put(path, JSON, b"{ not json")
    assert (first.status_code, again.status_code) == (201, 200)
    assert "Location" not in again.headers
    assert offset_of(again) == offset_of(first)
    assert streams.messages(path) == [1, 2]


def test_a_stream_created_closed_has_its_body_as_all_its_content(streams: Streams) -> None:
    path = streams.path()
    answer = streams.put(path, TEXT, b"all", CLOSED)
    assert (answer.status_code, closed(answer)) == (201, True)
    assert closed(streams.put(path, TEXT, b"", CLOSED))
    read = streams.get(path)
    assert (read.content, closed(read), up_to_date(read)) == (b"all", True, True)
    refused(streams.post(path, b"more", content_type=TEXT), "STREAM_CLOSED")


@pytest.mark.parametrize(
    "given",
    ["text/plain", "application/json", "Application/JSON", 'text/html; Charset="utf-8"', "application/vnd.a+json;v=1"],
)
def test_the_content_type_comes_back_exactly_as_given(streams: Streams, given: str) -> None:
    path = streams.path()
    answers = [streams.put(path, given), streams.put(path, given), streams.head(path), streams.get(path)]
    assert [answer.headers["Content-Type"] for answer in answers] == [given] * 4


@pytest.mark.parametrize("given", [None, "", "nonsense", "/", "text/", "/plain"], ids=repr)
def test_without_a_usable_content_type_a_stream_holds_octets(streams: Streams, given: str | None) -> None:
    path = streams.path()
    answer = streams.put(path, given, b"\xff\x00")
    assert (answer.status_code, answer.headers["Content-Type"]) == (201, OCTETS)
    assert streams.head(path).headers["Content-Type"] == OCTETS
    assert streams.content(path) == b"\xff\x00"


class Again(NamedTuple):
    """Two PUTs to one path, what happened in between, and the answer to the second."""

    first: Mapping[str, str]
    second: Mapping[str, str]
    status: int
    between: Callable[[Streams, str], object] = lambda streams, path: None


LATE, LATER = "2099-01-01T00:00:00Z", "2099-01-01T00:00:01Z"
AGAIN = {
    "nothing": Again({}, {}, 200),
    "the same type": Again({"Content-Type": TEXT}, {"Content-Type": TEXT}, 200),
    "the type in other letters": Again({"Content-Type": TEXT}, {"Content-Type": "TEXT/Plain"}, 200),
    "parameters of the type": Again({"Content-Type": TEXT}, {"Content-Type": TEXT + "; charset=utf-8"}, 200),
    "another type": Again({"Content-Type": TEXT}, {"Content-Type": JSON}, 409),
    "the default type": Again({}, {"Content-Type": OCTETS}, 200),
    "the same TTL": Again({"Stream-TTL": "60"}, {"Stream-TTL": "60"}, 200),
    "another TTL": Again({"Stream-TTL": "60"}, {"Stream-TTL": "61"}, 409),
    "no TTL": Again({"Stream-TTL": "60"}, {}, 409),
    "a TTL": Again({}, {"Stream-TTL": "60"}, 409),
    "the same end": Again({"Stream-Expires-At": LATE}, {"Stream-Expires-At": LATE}, 200),
    "another end": Again({"Stream-Expires-At": LATE}, {"Stream-Expires-At": LATER}, 409),
    "no end": Again({"Stream-Expires-At": LATE}, {}, 409),
    "an end instead of a TTL": Again({"Stream-TTL": "60"}, {"Stream-Expires-At": LATE}, 409),
    "closed, now closed": Again(CLOSED, CLOSED, 200),
    "open, asked for closed": Again({}, CLOSED, 409),
    "closed, asked for open": Again(CLOSED, {}, 409),
    "closed since, asked for closed": Again({}, CLOSED, 200, lambda streams, path: streams.close(path)),
    "closed since, asked for open": Again({}, {}, 409, lambda streams, path: streams.close(path)),
    "a close flag that counts as absent": Again({}, {"Stream-Closed": "yes"}, 200),
    "headers that do not count": Again({}, {"Stream-Seq": "1", KEY: "k", "X-Other": "1"}, 200),
}


@pytest.mark.parametrize("name", AGAIN)
def test_a_second_put_compares_the_configuration(streams: Streams, name: str) -> None:
    first, second, status, between = AGAIN[name]
    path = streams.path()
    assert streams.put(path, None, b"", first).status_code == 201
    between(streams, path)
    before = streams.head(path)
    answer = streams.put(path, None, b"", second)
    if status == 409:
        refused(answer, "STREAM_EXISTS")
    else:
        assert answer.status_code == 200
        assert answer.headers["Content-Type"] == before.headers["Content-Type"]
        assert closed(answer) == closed(before)
    after = streams.head(path)
    for header in ("Content-Type", "Stream-TTL", "Stream-Expires-At", "Stream-Closed", "Stream-Next-Offset"):
        assert after.headers.get(header) == before.headers.get(header)


INVALID_EXPIRY = {
    "both": {"Stream-TTL": "60", "Stream-Expires-At": LATE},
    **{
        f"TTL {value!r}": {"Stream-TTL": value}
        for value in ("", "-1", "+1", "00", "01", "1.0", "1.", ".5", "1e3", "0x1", "1_0", "1 0", "1,0", "abc", "60s")
    },
    **{
        f"end {value!r}": {"Stream-Expires-At": value}
        for value in (
            "",
            "tomorrow",
            "4070908800",
            "2099-01-01",
            "2099-01-01T00:00:00",
            "2099-01-01T00:00Z",
            "2099-1-1T00:00:00Z",
            "20990101T000000Z",
            "2099-W01-1T00:00:00Z",
            "2099-001T00:00:00Z",
            "2099-13-01T00:00:00Z",
            "2099-02-29T00:00:00Z",
            "2099-01-01T24:00:01Z",
            "2099-01-01T00:60:00Z",
            "2099-01-01T00:00:00+0200",
            "2099-01-01T00:00:00+02",
            "2099-01-01T00:00:00+25:00",
            "2099-01-01T00:00:00.Z",
            "2099-01-01T00:00:00,5Z",
            "2099-01-01T00:00:00ZZ",
            "2099-01-01T00:00:00Z 1",
            "Fri, 01 Jan 2099 00:00:00 GMT",
        )
    },
}


@pytest.mark.parametrize("name", INVALID_EXPIRY)
def test_an_invalid_expiry_is_refused_and_leaves_no_trace(streams: Streams, name: str) -> None:
    path = streams.path()
    refused(streams.put(path, JSON, b"1", INVALID_EXPIRY[name]), "INVALID_EXPIRY")
    assert streams.head(path).status_code == 404


@pytest.mark.parametrize("value", ["1\u00b2", "\uff11", "\u0661"], ids=["superscript", "fullwidth", "arabic"])
def test_a_ttl_has_ascii_digits(streams: Streams, value: str) -> None:
    path = streams.path()
    refused(raw(streams.server, "PUT", path, b"Stream-TTL: " + value.encode(), body=b""), "INVALID_EXPIRY")
    assert streams.head(path).status_code == 404


@pytest.mark.parametrize(
    "given",
    [
        "2099-01-01T00:00:00Z",
        "2099-01-01T00:00:00.5Z",
        "2099-01-01T00:00:00.123456Z",
        "2099-01-01T00:00:00.123456789Z",
        "2099-01-01T02:00:00+02:00",
        "2098-12-31T18:30:00-05:30",
        "2099-01-01T00:00:00-00:00",
        "2096-02-29T23:59:59Z",
    ],
)
def test_a_valid_end_is_accepted_and_told(streams: Streams, given: str) -> None:
    path = streams.new(headers={"Stream-Expires-At": given})
    told = datetime.fromisoformat(streams.head(path).headers["Stream-Expires-At"])
    assert abs((told - datetime.fromisoformat(given)).total_seconds()) < 0.01
    assert "Stream-TTL" not in streams.head(path).headers


@pytest.mark.parametrize("ttl", ["1", "60", "31536000", "4294967296"])
def test_a_valid_ttl_is_accepted_and_told_as_the_window(streams: Streams, ttl: str) -> None:
    def tell(_: float) -> None:
        made = time.monotonic()
        path = streams.new(headers={"Stream-TTL": ttl})
        with unless_late(lambda: made, int(ttl)):
            told = streams.head(path)
            assert told.headers["Stream-TTL"] == ttl
            assert "Stream-Expires-At" not in told.headers

    in_time(tell, int(ttl))


# -- Order of checks --------------------------------------------------------------------------------------------------


def prepared(streams: Streams, *, is_closed: bool = False) -> str:
    """A JSON stream with a Stream-Seq of 5, producer `p` at epoch 5 and sequence 0, and a key with body `1`."""
    path = streams.new()
    assert streams.keyed(path, "known", b"1").status_code == 204
    assert streams.post(path, b"2", {"Stream-Seq": "5"}).status_code == 204
    assert streams.post(path, b"3", producer("p", 5, 0)).status_code == 200
    if is_closed:
        assert streams.close(path).status_code == 204
    return path


class Wrong(NamedTuple):
    """A POST that is wrong in two ways or more, and which of them is named."""

    says: str
    body: bytes
    headers: Mapping[str, str]
    content_type: str | None = JSON
    stream: str = "open"


LARGE = b"1" * (BODY_LIMIT + 1)
GAP, STALE, MALFORMED = producer("p", 5, 9), producer("p", 4, 0), producer("p", "x", 0)
LATE_SEQ, BAD_KEY, KNOWN_KEY = {"Stream-Seq": "5"}, {KEY: "k" * 257}, {KEY: "known"}
ORDER = {
    "1-2 producer syntax, missing": Wrong("INVALID_PRODUCER", b"1", MALFORMED, stream="missing"),
    "1-2 key syntax, missing": Wrong("INVALID_IDEMPOTENCY_KEY", b"1", BAD_KEY, stream="missing"),
    "1-3 producer syntax, empty": Wrong("INVALID_PRODUCER", b"", MALFORMED),
    "1-3 key syntax, no type": Wrong("INVALID_IDEMPOTENCY_KEY", b"1", BAD_KEY, None),
    "1-4 producer syntax, key known": Wrong("INVALID_PRODUCER", b"2", MALFORMED | KNOWN_KEY),
    "1-5 producer syntax, closed": Wrong("INVALID_PRODUCER", b"1", MALFORMED, stream="closed"),
    "1-5 key syntax, closed": Wrong("INVALID_IDEMPOTENCY_KEY", b"1", BAD_KEY, stream="closed"),
    "1-6 key syntax, type": Wrong("INVALID_IDEMPOTENCY_KEY", b"1", BAD_KEY, TEXT),
    "1-8 key syntax, Stream-Seq": Wrong("INVALID_IDEMPOTENCY_KEY", b"1", BAD_KEY | LATE_SEQ),
    "1-9 producer syntax, JSON": Wrong("INVALID_PRODUCER", b"{", MALFORMED),
    "2-3 missing, empty": Wrong("STREAM_NOT_FOUND", b"", {}, stream="missing"),
    "2-3 missing, no type": Wrong("STREAM_NOT_FOUND", b"1", {}, None, stream="missing"),
    "2-3 missing, too large": Wrong("STREAM_NOT_FOUND", LARGE, {}, stream="missing"),
    "2-9 missing, JSON": Wrong("STREAM_NOT_FOUND", b"{", {}, stream="missing"),
    "3-3 empty, no type": Wrong("EMPTY_BODY", b"", {}, None),
    "3-4 empty, key known": Wrong("EMPTY_BODY", b"", KNOWN_KEY),
    "3-4 no type, key known": Wrong("MISSING_CONTENT_TYPE", b"2", KNOWN_KEY, None),
    "3-4 too large, key known": Wrong("PAYLOAD_TOO_LARGE", LARGE, KNOWN_KEY),
    "3-5 empty, closed": Wrong("EMPTY_BODY", b"", {}, stream="closed"),
    "3-5 no type, closed": Wrong("MISSING_CONTENT_TYPE", b"1", {}, None, stream="closed"),
    "3-5 too large, closed": Wrong("PAYLOAD_TOO_LARGE", LARGE, {}, stream="closed"),
    "3-6 too large, type": Wrong("PAYLOAD_TOO_LARGE", LARGE, {}, TEXT),
    "3-7 no type, gap": Wrong("MISSING_CONTENT_TYPE", b"1", GAP, None),
    "3-8 empty, Stream-Seq": Wrong("EMPTY_BODY", b"", LATE_SEQ),
    "4-5 mismatch, closed": Wrong("IDEMPOTENCY_MISMATCH", b"2", KNOWN_KEY, stream="closed"),
    "4-6 mismatch, type": Wrong("IDEMPOTENCY_MISMATCH", b"2", KNOWN_KEY, TEXT),
    "4-7 mismatch, gap": Wrong("IDEMPOTENCY_MISMATCH", b"1", KNOWN_KEY | GAP),
    "4-7 mismatch, stale": Wrong("IDEMPOTENCY_MISMATCH", b"1", KNOWN_KEY | STALE),
    "4-8 mismatch, Stream-Seq": Wrong("IDEMPOTENCY_MISMATCH", b"2", KNOWN_KEY | LATE_SEQ),
    "4-9 mismatch, JSON": Wrong("IDEMPOTENCY_MISMATCH", b"{", KNOWN_KEY),
    "5-6 closed, type": Wrong("STREAM_CLOSED", b"1", {}, TEXT, stream="closed"),
    "5-7 closed, gap": Wrong("STREAM_CLOSED", b"1", GAP, stream="closed"),
    "5-7 closed, duplicate": Wrong("STREAM_CLOSED", b"1", producer("p", 5, 0), stream="closed"),
    "5-8 closed, Stream-Seq": Wrong("STREAM_CLOSED", b"1", LATE_SEQ, stream="closed"),
    "5-9 closed, JSON": Wrong("STREAM_CLOSED", b"{", {}, stream="closed"),
    "6-7 type, gap": Wrong("CONTENT_TYPE_MISMATCH", b"1", GAP, TEXT),
    "6-7 type, stale": Wrong("CONTENT_TYPE_MISMATCH", b"1", STALE, TEXT),
    "6-7 type, duplicate": Wrong("CONTENT_TYPE_MISMATCH", b"1", producer("p", 5, 0), TEXT),
    "6-8 type, Stream-Seq": Wrong("CONTENT_TYPE_MISMATCH", b"1", LATE_SEQ, TEXT),
    "6-9 type, JSON": Wrong("CONTENT_TYPE_MISMATCH", b"{", {}, TEXT),
    "7-8 gap, Stream-Seq": Wrong("PRODUCER_GAP", b"1", GAP | LATE_SEQ),
    "7-8 stale, Stream-Seq": Wrong("PRODUCER_FENCED", b"1", STALE | LATE_SEQ),
    "7-9 gap, JSON": Wrong("PRODUCER_GAP", b"{", GAP),
    "7-9 stale, empty array": Wrong("PRODUCER_FENCED", b"[]", STALE),
    "8-9 Stream-Seq, JSON": Wrong("SEQUENCE_CONFLICT", b"{", LATE_SEQ),
    "8-9 Stream-Seq, empty array": Wrong("SEQUENCE_CONFLICT", b"[]", LATE_SEQ),
}


@pytest.mark.parametrize("name", ORDER)
def test_of_two_wrongs_the_earlier_check_speaks(streams: Streams, name: str) -> None:
    says, body, headers, content_type, kind = ORDER[name]
    path = streams.path() if kind == "missing" else prepared(streams, is_closed=kind == "closed")
    tail = None if kind == "missing" else streams.tail(path)
    refused(streams.post(path, body, headers, content_type=content_type), says)
    if tail is None:
        assert streams.head(path).status_code == 404
    else:
        assert streams.tail(path) == tail


def test_a_duplicate_with_a_late_stream_seq_and_no_json_is_a_duplicate(streams: Streams) -> None:
    path = prepared(streams)
    answer = streams.post(path, b"{", producer("p", 5, 0) | LATE_SEQ)
    assert (answer.status_code, offset_of(answer)) == (204, streams.tail(path))


PUT_ORDER: dict[str, tuple[Mapping[str, str], bytes, str]] = {
    "syntax, then target": ({"Content-Type": JSON, "Stream-TTL": "x"}, b"", "INVALID_EXPIRY"),
    "syntax, then another configuration": ({"Content-Type": TEXT, "Stream-TTL": "x"}, b"", "INVALID_EXPIRY"),
    "another configuration, then JSON": ({"Content-Type": JSON, "Stream-TTL": "60"}, b"{", "STREAM_EXISTS"),
}


@pytest.mark.parametrize("name", PUT_ORDER)
def test_order_of_checks_on_put(streams: Streams, name: str) -> None:
    headers, body, says = PUT_ORDER[name]
    path = streams.new(JSON)
    refused(streams.put(path, None, body, headers), says)


@pytest.mark.parametrize("body", [b"{", b"1 2", b"[1,]", b"\xff", b"NaN"], ids=repr)
@pytest.mark.parametrize("headers", [{}, CLOSED], ids=["open", "closed"])
def test_a_put_refused_for_its_json_leaves_no_trace(streams: Streams, body: bytes, headers: Mapping[str, str]) -> None:
    path = streams.path()
    refused(streams.put(path, JSON, body, headers), "INVALID_JSON")
    refused(streams.get(path), "STREAM_NOT_FOUND")
    assert streams.put(path, TEXT, b"fresh").status_code == 201


@pytest.mark.parametrize("query", ["offset=bad", "offset=", "live=sse", "live=long-poll", "offset=-1&offset=-1"])
def test_a_missing_stream_speaks_before_a_bad_query(streams: Streams, query: str) -> None:
    refused(streams.client.get(f"{streams.path()}?{query}"), "STREAM_NOT_FOUND")


# -- 4. Append and close ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["true", "TRUE", "True", "tRuE"])
def test_true_in_any_letters_closes(streams: Streams, value: str) -> None:
    path = streams.new()
    answer = streams.post(path, b"1", {"Stream-Closed": value})
    assert (answer.status_code, closed(answer), closed(streams.head(path))) == (204, True, True)
    assert streams.put(streams.path(), JSON, b"", {"Stream-Closed": value}).headers["Stream-Closed"] == "true"


@pytest.mark.parametrize("value", ["", "false", "1", "yes", "t", "true,true", "true true", '"true"', "?1", "trueish"])
def test_any_other_value_is_as_good_as_absent(streams: Streams, value: str) -> None:
    path = streams.new(headers={"Stream-Closed": value})
    answer = streams.post(path, b"1", {"Stream-Closed": value})
    assert (answer.status_code, closed(answer), closed(streams.head(path))) == (204, False, False)
    refused(streams.post(path, b"", {"Stream-Closed": value}), "EMPTY_BODY")


@pytest.mark.parametrize("content_type", [None, JSON, TEXT, "nonsense", ""], ids=repr)
def test_a_close_only_ignores_the_content_type(streams: Streams, content_type: str | None) -> None:
    path = streams.new(JSON, b"1")
    tail = streams.tail(path)
    for _ in range(2):
        answer = streams.post(path, b"", CLOSED, content_type=content_type)
        assert (answer.status_code, closed(answer), offset_of(answer)) == (204, True, tail)
    assert streams.messages(path) == [1]


@pytest.mark.parametrize("headers", [{}, CLOSED], ids=["append", "append and close"])
def test_a_closed_stream_tells_its_final_offset(streams: Streams, headers: Mapping[str, str]) -> None:
    path = streams.new(JSON, b"[1,2]")
    streams.close(path)
    answer = streams.post(path, b"3", headers)
    refused(answer, "STREAM_CLOSED")
    assert (closed(answer), offset_of(answer)) == (True, streams.tail(path))


def test_append_and_close_is_one_step(streams: Streams) -> None:
    path = streams.new(TEXT, b"a")
    answer = streams.post(path, b"b", CLOSED, content_type=TEXT)
    assert (answer.status_code, closed(answer), offset_of(answer)) == (204, True, streams.tail(path))
    assert streams.content(path) == b"ab"


def test_an_append_and_close_that_is_refused_does_not_close(streams: Streams) -> None:
    path = prepared(streams)
    for body, headers, content_type in ((b"{", CLOSED, JSON), (b"1", CLOSED, TEXT), (b"1", CLOSED | LATE_SEQ, JSON)):
        is_problem(streams.post(path, body, headers, content_type=content_type))
    assert not closed(streams.head(path))


def test_a_chunked_body_is_one_append(streams: Streams) -> None:
    path = streams.new(TEXT)
    answer = streams.post(path, iter([b"a", b"bc", b"", b"def"]), content_type=TEXT)
    assert answer.status_code == 204
    assert streams.content(path) == b"abcdef"
    refused(streams.post(path, iter([]), content_type=TEXT), "EMPTY_BODY")


SEQUENCES = {
    "bytewise, not by number": ["1", "10", "2", "20", "3"],
    "bytewise, not by locale": ["A", "Z", "a", "z", "~"],
    "a longer one after its prefix": ["a", "aa", "aaa"],
    "spaces inside count": ["a", "a a", "aa"],
    "long": ["x" * 1000, "x" * 1001],
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_stream_seq_must_rise_bytewise(streams: Streams, name: str) -> None:
    path = streams.new()
    used: list[str] = []
    for value in SEQUENCES[name]:
        assert streams.post(path, b"1", {"Stream-Seq": value}).status_code == 204
        used.append(value)
        for late in used:
            refused(streams.post(path, b"9", {"Stream-Seq": late}), "SEQUENCE_CONFLICT")
    assert streams.messages(path) == [1] * len(used)


def test_stream_seq_is_the_streams_own_and_moves_only_with_an_append(streams: Streams) -> None:
    path, other = streams.new(), streams.new()
    assert streams.post(path, b"1", {"Stream-Seq": "5"}).status_code == 204
    assert streams.post(other, b"1", {"Stream-Seq": "1"}).status_code == 204
    refused(streams.post(path, b"{", {"Stream-Seq": "9"}), "INVALID_JSON")
    refused(streams.post(path, b"1", {"Stream-Seq": "9"}, content_type=TEXT), "CONTENT_TYPE_MISMATCH")
    assert streams.post(path, b"2").status_code == 204  # without one it stays where it is
    refused(streams.post(path, b"9", {"Stream-Seq": "5"}), "SEQUENCE_CONFLICT")
    assert streams.post(path, b"3", {"Stream-Seq": "6"}).status_code == 204
    assert streams.messages(path) == [1, 2, 3]


def test_every_success_tells_the_tail(streams: Streams) -> None:
    path = streams.new()
    for headers in ({}, producer("p", 0, 0), producer("p", 0, 0), {KEY: "k"}, {KEY: "k"}, CLOSED):
        answer = streams.post(path, b"1", headers)
        assert answer.status_code in (200, 204)
        assert offset_of(answer) == streams.tail(path)


def test_a_write_is_seen_by_the_next_read_and_head(streams: Streams) -> None:
    path = streams.new(TEXT)
    for number in range(30):
        before = streams.tail(path)
        tail = offset_of(streams.post(path, b"%03d" % number, content_type=TEXT))
        read = streams.get(path, offset=before)
        assert (read.content, offset_of(read), streams.tail(path)) == (b"%03d" % number, tail, tail)


@pytest.mark.each_store
def test_racing_appends_are_all_kept_each_under_its_own_offset(streams: Streams) -> None:
    path = streams.new()
    writers, each = 8, 12

    def write(writer: int) -> list[tuple[str, int]]:
        numbers = range(writer * each, (writer + 1) * each)
        return [(offset_of(streams.post(path, b"%d" % number)), number) for number in numbers]

    written = [pair for pairs in at_once([partial(write, writer) for writer in range(writers)]) for pair in pairs]
    assert len({offset for offset, _ in written}) == writers * each
    assert [number for _, number in sorted(written)] == streams.messages(path)


# -- 5. Content -------------------------------------------------------------------------------------------------------


def test_octets_come_back_as_they_went_in(streams: Streams) -> None:
    path = streams.new(OCTETS)
    pieces = [bytes(range(256)), b"\r\n", b"\0", b"\xff" * 3, b"[1,2]"]
    for piece in pieces:
        assert streams.post(path, piece, content_type=OCTETS).status_code == 204
    assert streams.content(path) == b"".join(pieces)


FLATTENED: dict[bytes, list[Any]] = {
    b"1": [1],
    b"null": [None],
    b'"a"': ["a"],
    b"{}": [{}],
    b"[1,2]": [1, 2],
    b"[[1,2],[3]]": [[1, 2], [3]],
    b"[[[1]]]": [[[1]]],
    b"[[]]": [[]],
    b'[{"a":[1]},null,"x"]': [{"a": [1]}, None, "x"],
    b" \r\n\t[ 1 , 2 ] \n": [1, 2],
}


@pytest.mark.parametrize("body", FLATTENED, ids=repr)
def test_an_array_is_flattened_by_one_level(streams: Streams, body: bytes) -> None:
    created, appended = streams.new(JSON, body), streams.new("application/json; charset=utf-8")
    assert streams.post(appended, body).status_code == 204
    assert streams.messages(created) == streams.messages(appended) == FLATTENED[body]


def test_an_empty_array_creates_an_empty_stream_and_appends_nothing(streams: Streams) -> None:
    path = streams.new(JSON, b"[]")
    read = streams.get(path)
    assert (read.json(), read.headers["Content-Type"], offset_of(read)) == ([], JSON, START)
    for body in (b"[]", b" [ ] "):
        answer = streams.post(path, body)
        is_problem(answer)
        assert answer.status_code == 400
    assert streams.tail(path) == START


@pytest.mark.parametrize(
    "message",
    [
        b"12345678901234567890123",
        b"0.1000000000000000055511151231257827",
        b"1.0",
        b"-0",
        b"1E400",
        b'{"a":1,"a":2}',
        b'{"b":1,"a":2}',
        rb'"\u0041\/\ud83d\ude00"',
        rb'"\u2028\u0000"',
        '"é\u2028😀"'.encode(),
        b'"\x7f"',
        rb'{"a b":"c  d","e":[" "]}',
    ],
    ids=repr,
)
def test_a_message_keeps_its_own_text(streams: Streams, message: bytes) -> None:
    path = streams.new()
    assert streams.post(path, message).status_code == 204
    assert streams.get(path).content.removeprefix(b"[").removesuffix(b"]").strip() == message


def test_json_is_not_touched_up_with_offsets(streams: Streams) -> None:
    message = b'{"headers":{"operation":"insert","control":"x"},"value":1}'
    path = streams.new(JSON, message)
    assert streams.messages(path) == [json.loads(message)]


# -- 7. Offsets -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content_type", [JSON, TEXT, OCTETS])
def test_offsets_rise_and_each_can_be_read_from(streams: Streams, content_type: str) -> None:
    path = streams.new(content_type)
    bodies = [b"%d" % number for number in range(10, 25)]
    offsets = [streams.tail(path)]
    offsets += [offset_of(streams.post(path, body, content_type=content_type)) for body in bodies]
    assert offsets[0] == START
    assert offsets == sorted(set(offsets))
    for index, offset in enumerate(offsets):
        read = streams.get(path, offset=offset)
        numbers = (
            read.json() if content_type == JSON else [int(read.text[i : i + 2]) for i in range(0, len(read.text), 2)]
        )
        assert numbers == list(range(10 + index, 25))
        assert offset_of(read) == offsets[-1]


def test_the_start_has_three_names(streams: Streams) -> None:
    path = streams.new(TEXT, b"abc")
    reads = [streams.get(path), streams.get(path, offset="-1"), streams.get(path, offset=START)]
    assert [read.content for read in reads] == [b"abc"] * 3


@pytest.mark.parametrize("is_closed", [False, True], ids=["open", "closed"])
def test_past_the_tail_there_is_nothing(streams: Streams, is_closed: bool) -> None:
    path = streams.new(JSON, b"1")
    if is_closed:
        streams.close(path)
    answer = streams.get(path, offset=TOO_FAR)
    assert (answer.status_code, answer.json(), offset_of(answer)) == (200, [], streams.tail(path))


NOT_OFFSETS = {
    "empty": "",
    "space": " ",
    "word": "abc",
    "minus two": "-2",
    "minus one and a space": "-1 ",
    "plus": "+1",
    "zero": "0",
    "NOW": "NOW",
    "now and a newline": "now\n",
    "space before": " " + START,
    "space after": START + " ",
    "newline after": START + "\n",
    "carriage return": START + "\r",
    "NUL after": START + "\0",
    "NUL inside": START[:16] + "\0" + START[17:],
    "short": "0_0",
    "no line": START.replace("_", ""),
    "other line": START.replace("_", "-"),
    "two lines": START + "_" + START[:16],
    "15 digits": START[1:],
    "17 digits": "0" + START,
    "hexadecimal": START[:-1] + "a",
    "fullwidth digits": START.replace("0", "\uff10"),
    "arabic digits": START.replace("0", "\u0660"),
    "comma": START + "," + START,
    "comma in front": "," + START,
    "slash": START + "/",
    "dots": "..",
    "path": "../../etc/passwd",
    "sign": "-" + START,
    "quotes": f'"{START}"',
    "encoded twice": "%2D1",
    "long": "0" * 5000,
}


@pytest.mark.parametrize("mode", [None, "long-poll", "sse"])
@pytest.mark.parametrize("name", NOT_OFFSETS)
def test_a_malformed_offset_is_refused_in_every_mode(streams: Streams, name: str, mode: str | None) -> None:
    path = streams.new(JSON, b"1")
    query = {"offset": NOT_OFFSETS[name]} | ({"live": mode} if mode else {})
    refused(streams.get(path, **query), "INVALID_OFFSET")


@pytest.mark.parametrize("mode", ["", "&live=long-poll", "&live=sse"], ids=["catch-up", "long-poll", "sse"])
@pytest.mark.parametrize(
    "query", ["offset=-1&offset=-1", "offset=-1&offset=now", f"offset={START}&x=1&offset=", "offset", "offset=%FF"]
)
def test_a_repeated_or_valueless_offset_is_refused(streams: Streams, query: str, mode: str) -> None:
    path = streams.new(JSON, b"1")
    refused(streams.client.get(f"{path}?{query}{mode}"), "INVALID_OFFSET")


@pytest.mark.parametrize("mode", ["long-poll", "sse"])
def test_a_live_read_needs_an_offset(streams: Streams, mode: str) -> None:
    answer = streams.get(streams.new(), live=mode)
    is_problem(answer)
    assert answer.status_code == 400


def test_unknown_queries_and_headers_are_ignored(streams: Streams) -> None:
    path = streams.new(JSON, b"1")
    answer = streams.client.get(f"{path}?limit=0&Offset=bad&%FF=1&&=&=x&offset=-1", headers={"X-Other": "1"})
    assert (answer.status_code, answer.json()) == (200, [1])
    assert streams.post(path + "?offset=bad&live=sse", b"2").status_code == 204


def test_an_unknown_mode_is_refused_or_ignored(streams: Streams) -> None:
    path = streams.new(JSON, b"1")
    answer = streams.get(path, live="telepathy", offset="-1")
    if answer.status_code != 200:
        is_problem(answer)
        assert answer.status_code == 400
    else:
        assert answer.json() == [1]


@pytest.mark.parametrize("is_closed", [False, True], ids=["open", "closed"])
def test_now_in_a_catch_up_read(streams: Streams, is_closed: bool) -> None:
    for content_type, nothing in ((JSON, b"[]"), (TEXT, b"")):
        path = streams.new(content_type, b"1")
        if is_closed:
            streams.close(path)
        answer = streams.get(path, offset="now")
        assert (answer.status_code, answer.content, offset_of(answer)) == (200, nothing, streams.tail(path))
        assert (up_to_date(answer), closed(answer)) == (True, is_closed)
        assert answer.headers["Cache-Control"] == "no-store"
        assert "ETag" not in answer.headers


def test_now_on_a_closed_stream_answers_at_once_in_every_mode(patient: Streams) -> None:
    path = patient.new(JSON, b"1")
    patient.close(path)
    polled = patient.get(path, live="long-poll", offset="now")
    assert (polled.status_code, closed(polled), offset_of(polled)) == (204, True, patient.tail(path))
    with patient.live(path, "now") as live:
        [only] = live.rest()
    assert (only.control["streamClosed"], only.control["streamNextOffset"]) == (True, patient.tail(path))


@pytest.mark.each_store
def test_now_in_a_live_read_begins_at_the_tail(patient: Streams) -> None:
    path = patient.new(JSON, b"1")
    with ThreadPoolExecutor(1) as pool, patient.live(path, "now") as live:
        first = live.event().control
        assert (first["streamNextOffset"], first["upToDate"]) == (patient.tail(path), True)
        polled = pool.submit(lambda: patient.get(path, live="long-poll", offset="now"))
        time.sleep(0.2)
        assert not polled.done()
        sent: list[int] = []

        def is_heard() -> bool:
            sent.append(len(sent) + 2)
            assert patient.post(path, b"%d" % sent[-1]).status_code == 204
            return bool(wait([polled], timeout=1).done)

        # It begins whenever it gets there.
        eventually(is_heard, "the poll is answered")
        heard = polled.result().json()
        assert heard == sent[sent.index(heard[0]) :][: len(heard)]
        followed: list[int] = []
        while len(followed) < len(sent):
            event = live.event()
            followed += json.loads(event.text) if event.kind == "data" else []
        assert followed == sent


# -- 8. Catch-up ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_closed", [False, True], ids=["open", "closed"])
def test_pages_end_before_the_tail_but_for_the_last(streams: Streams, is_closed: bool) -> None:
    path = streams.new(TEXT)
    pieces = [bytes([letter]) * 400 for letter in b"abcdefgh"]
    for piece in pieces:
        streams.post(path, piece, content_type=TEXT)
    if is_closed:
        streams.close(path)
    pages = [streams.get(path)]
    while not up_to_date(pages[-1]):
        pages.append(streams.get(path, offset=offset_of(pages[-1])))
    assert len(pages) > 1
    assert b"".join(page.content for page in pages) == b"".join(pieces)
    assert offset_of(pages[-1]) == streams.tail(path)
    assert [closed(page) for page in pages] == [False] * (len(pages) - 1) + [is_closed]
    assert len({page.headers["ETag"] for page in pages}) == len(pages)
    for page in pages[:-1]:
        assert "max-age=60" in page.headers["Cache-Control"]
        assert "stale-while-revalidate=300" in page.headers["Cache-Control"]
    assert pages[-1].headers["Cache-Control"] == "no-cache"
    # A page that ends before the tail never changes.
    if not is_closed:
        streams.post(path, b"more", content_type=TEXT)
    again = streams.get(path)
    assert (again.content, again.headers["ETag"]) == (pages[0].content, pages[0].headers["ETag"])


def test_an_append_larger_than_a_page_is_read_whole(streams: Streams) -> None:
    path = streams.new(JSON)
    large = json.dumps(["x" * 50] * 100).encode()
    for _ in range(2):
        streams.post(path, large)
    assert streams.messages(path) == ["x" * 50] * 200


def test_an_empty_answer_has_all_headers(streams: Streams) -> None:
    path = streams.new(TEXT, b"abc")
    answer = streams.get(path, offset=streams.tail(path))
    assert (answer.status_code, answer.content, answer.headers["Content-Type"]) == (200, b"", TEXT)
    assert (offset_of(answer), up_to_date(answer), closed(answer)) == (streams.tail(path), True, False)
    assert answer.headers["ETag"]
    streams.close(path)
    assert closed(streams.get(path, offset=streams.tail(path)))


# -- 8. Long poll -----------------------------------------------------------------------------------------------------


def test_a_long_poll_with_data_answers_at_once(patient: Streams) -> None:
    path = patient.new(JSON, b"[1,2]")
    answer = patient.get(path, live="long-poll", offset="-1")
    assert (answer.status_code, answer.json(), offset_of(answer)) == (200, [1, 2], patient.tail(path))
    assert up_to_date(answer)
    assert answer.headers["Stream-Cursor"].isdigit()
    assert answer.headers["Content-Type"] == JSON


def test_a_long_poll_that_times_out_says_where_to_read_on(streams: Streams) -> None:
    path = streams.new(JSON, b"1")
    begun = time.monotonic()
    answer = streams.get(path, live="long-poll", offset=streams.tail(path))
    assert time.monotonic() - begun > 0.3
    assert (answer.status_code, answer.content, offset_of(answer)) == (204, b"", streams.tail(path))
    assert (up_to_date(answer), closed(answer)) == (True, False)
    assert answer.headers["Stream-Cursor"].isdigit()
    assert {"no-store", "no-cache"} & {part.strip() for part in answer.headers["Cache-Control"].split(",")}


def test_a_long_poll_at_the_end_of_a_closed_stream_does_not_wait(patient: Streams) -> None:
    path = patient.new(JSON, b"1")
    patient.close(path)
    answer = patient.get(path, live="long-poll", offset=patient.tail(path))
    assert (answer.status_code, closed(answer), up_to_date(answer)) == (204, True, True)
    first = patient.get(path, live="long-poll", offset="-1")
    assert (first.status_code, first.json(), closed(first)) == (200, [1], True)


@pytest.mark.each_store
def test_all_waiting_readers_get_what_is_appended(patient: Streams) -> None:
    path = patient.new(JSON, b"1")
    tail = patient.tail(path)
    with ThreadPoolExecutor(20) as pool:
        readers = [pool.submit(lambda: patient.get(path, live="long-poll", offset=tail)) for _ in range(20)]
        time.sleep(0.3)
        patient.post(path, b"[2,3]")
        for reader in readers:
            answer = reader.result()
            assert (answer.status_code, answer.json(), offset_of(answer)) == (200, [2, 3], patient.tail(path))


@pytest.mark.each_store
@pytest.mark.parametrize("body", [b"", b"2"], ids=["close only", "append and close"])
def test_a_close_ends_a_waiting_long_poll(patient: Streams, body: bytes) -> None:
    path = patient.new(JSON, b"1")
    tail = patient.tail(path)
    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(lambda: patient.get(path, live="long-poll", offset=tail))
        time.sleep(0.2)
        patient.post(path, body, CLOSED)
        answer = reader.result()
    assert (closed(answer), up_to_date(answer), offset_of(answer)) == (True, True, patient.tail(path))
    assert (answer.status_code, answer.content) == ((200, b"[2]") if body else (204, b""))


@pytest.mark.each_store
def test_a_write_to_another_stream_wakes_no_reader(patient: Streams) -> None:
    path, other = patient.new(), patient.new()
    with ThreadPoolExecutor(1) as pool:
        # Not from "now": if it came there late, it would begin behind what it is to be woken by.
        reader = pool.submit(lambda: patient.get(path, live="long-poll", offset=START))
        time.sleep(0.2)
        patient.post(other, b"9")
        patient.close(other)
        time.sleep(0.1)
        assert not reader.done()
        patient.post(path, b"1")
        assert reader.result().json() == [1]


# -- 8. SSE -----------------------------------------------------------------------------------------------------------


def read_closed(streams: Streams, path: str, offset: str = "-1") -> list[Event]:
    """Close a stream and read it by SSE to its end; the rules that hold for every such read are checked here."""
    streams.close(path)
    with streams.live(path, offset) as live:
        events = live.rest()
    assert events[-1].control["streamClosed"] is True
    assert "streamCursor" not in events[-1].control
    offsets = []
    for event, following in itertools.pairwise(events):
        if event.kind == "data":
            assert following.kind == "control"
            offsets.append(following.control["streamNextOffset"])
        else:
            assert "streamClosed" not in event.control
            assert event.control["streamCursor"].isdigit()
    assert offsets == sorted(set(offsets))
    assert events[-1].control["streamNextOffset"] == streams.tail(path)
    return [event for event in events if event.kind == "data"]


SPLIT = {
    "one line": (b"a", ["a"]),
    "LF": (b"a\nb", ["a", "b"]),
    "CR": (b"a\rb", ["a", "b"]),
    "CRLF": (b"a\r\nb", ["a", "b"]),
    "LFCR": (b"a\n\rb", ["a", "", "b"]),
    "CR CRLF": (b"a\r\r\nb", ["a", "", "b"]),
    "at the end": (b"a\n", ["a", ""]),
    "at the start": (b"\na", ["", "a"]),
    "nothing else": (b"\n", ["", ""]),
    "empty lines": (b"\r\n\r\n", ["", "", ""]),
    "other separators": ("a\u2028b\u2029c\u0085d\u000be\u000cf".encode(), ["a\u2028b\u2029c\u0085d\u000be\u000cf"]),
    "NUL and tabs": (b"a\0\tb", ["a\0\tb"]),
    "a byte order mark": ("\ufeffa".encode(), ["\ufeffa"]),
    "a field's name": (b"data:x\nevent: control", ["data:x", "event: control"]),
    "a comment": (b": comment\nid: 7\nretry: 1", [": comment", "id: 7", "retry: 1"]),
    "a forged event": (
        b'x\n\nevent: control\ndata:{"streamNextOffset":"9","streamClosed":true}\n\n',
        ["x", "", "event: control", 'data:{"streamNextOffset":"9","streamClosed":true}', "", ""],
    ),
    "a forged event with CR": (
        b"x\r\revent: control\rdata:{}\r\r",
        ["x", "", "event: control", "data:{}", "", ""],
    ),
}


@pytest.mark.parametrize("name", SPLIT)
def test_text_is_split_into_lines_and_cannot_forge_an_event(streams: Streams, name: str) -> None:
    payload, lines = SPLIT[name]
    path = streams.new(TEXT)
    streams.post(path, payload, content_type=TEXT)
    [data] = read_closed(streams, path)
    assert list(data.lines) == lines


ENCODINGS = {
    "text/plain": False,
    "text/html; charset=utf-8": False,
    "TEXT/CSV": False,
    "application/json": False,
    "Application/JSON; charset=utf-8": False,
    "application/octet-stream": True,
    "application/x-ndjson": True,
    "application/problem+json": True,
    "application/xml": True,
    "image/svg+xml": True,
    "x-text/plain": True,
}


@pytest.mark.parametrize("content_type", ENCODINGS)
def test_what_is_not_text_goes_as_base64(streams: Streams, content_type: str) -> None:
    encoded = ENCODINGS[content_type]
    path = streams.new(content_type)
    for body in (b"1", b"22", b"333", b"4444"):
        streams.post(path, body, content_type=content_type)
    with streams.live(path) as live:
        headers = live.response.headers
        assert headers["Content-Type"] == "text/event-stream"
        assert headers["Cache-Control"] == "no-cache"
        assert "Content-Length" not in headers
        assert headers.get("Stream-SSE-Data-Encoding") == ("base64" if encoded else None)
    texts = [event.text for event in read_closed(streams, path)]
    if encoded:
        pieces = [base64.b64decode(text.replace("\n", ""), validate=True) for text in texts]
        assert b"".join(pieces) == b"1223334444"
    elif "json" in content_type.lower():
        assert [message for text in texts for message in json.loads(text)] == [1, 22, 333, 4444]
    else:
        assert "".join(texts) == "1223334444"


def test_base64_uses_the_standard_alphabet(streams: Streams) -> None:
    path = streams.new(OCTETS)
    payload = bytes(range(256)) + b"\xfb\xff\xfe"
    streams.post(path, payload, content_type=OCTETS)
    texts = [event.text.replace("\n", "") for event in read_closed(streams, path)]
    assert b"".join(base64.b64decode(text, validate=True) for text in texts) == payload
    assert {"+", "/"} <= set("".join(texts))


def test_json_of_many_pages_comes_as_complete_arrays(streams: Streams) -> None:
    path = streams.new()
    messages = [{"n": n, "text": "line\n\r\n\u2028" * 9} for n in range(60)]
    for start in range(0, 60, 3):
        streams.post(path, json.dumps(messages[start : start + 3], indent=1).encode())
    events = read_closed(streams, path)
    assert len(events) > 1
    assert [message for event in events for message in json.loads(event.text)] == messages


@pytest.mark.parametrize("content", [b"", b"[1,2]"], ids=["empty", "filled"])
@pytest.mark.parametrize("offset", ["-1", START, "now"])
def test_the_first_control_event_comes_at_once_with_the_real_tail(
    patient: Streams, content: bytes, offset: str
) -> None:
    path = patient.new(JSON, content)
    with patient.live(path, offset) as live:
        *data, control = live.until_up_to_date()
    assert control.control["streamNextOffset"] == patient.tail(path)
    assert control.control["streamCursor"].isdigit()
    assert "streamClosed" not in control.control
    assert [event.kind for event in data] == (["data"] if content and offset != "now" else [])


def test_a_live_reader_gets_each_append_with_its_own_control_event(patient: Streams) -> None:
    path = patient.new()
    with patient.live(path) as live:
        live.until_up_to_date()
        for number in range(5):
            tail = offset_of(patient.post(path, b"%d" % number))
            assert json.loads(live.event().text) == [number]
            control = live.event().control
            assert (control["streamNextOffset"], control["upToDate"]) == (tail, True)


@pytest.mark.parametrize("body", [b"", b"2"], ids=["close only", "append and close"])
def test_a_live_reader_gets_the_last_data_then_the_close_then_the_end(patient: Streams, body: bytes) -> None:
    path = patient.new(JSON, b"1")
    with patient.live(path) as live:
        live.until_up_to_date()
        patient.post(path, body, CLOSED)
        *data, last = live.rest()
    texts = [event.text for event in data if event.kind == "data"]
    assert texts == (["[2]"] if body else [])
    assert (last.control["streamClosed"], last.control["streamNextOffset"]) == (True, patient.tail(path))
    assert "streamCursor" not in last.control


def test_the_end_of_a_closed_stream_is_one_control_event(patient: Streams) -> None:
    path = patient.new(JSON, b"1")
    patient.close(path)
    with patient.live(path, patient.tail(path)) as live:
        [only] = live.rest()
    assert only.control["streamClosed"] is True


@pytest.mark.each_store
def test_many_live_readers_see_racing_appends_in_one_order(patient: Streams) -> None:
    path = patient.new()

    def read() -> list[Any]:
        with patient.live(path) as live:
            return [message for event in live.rest() if event.kind == "data" for message in json.loads(event.text)]

    def write(writer: int) -> None:
        for number in range(10):
            assert patient.post(path, b'"%d-%d"' % (writer, number)).status_code == 204

    with ThreadPoolExecutor(5) as pool:
        readers = [pool.submit(read) for _ in range(5)]
        at_once([partial(write, writer) for writer in range(4)])
        patient.close(path)
        seen = [reader.result() for reader in readers]
    assert seen == [patient.messages(path)] * 5
    assert len(seen[0]) == 40


def test_an_idle_reader_gets_control_events_and_is_let_go_in_the_end(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    in_time(partial(stay_idle, tmp_path_factory), 0.8)


def stay_idle(tmp_path_factory: pytest.TempPathFactory, seconds: float) -> None:
    data = tmp_path_factory.mktemp("idle") / "data"
    with serving(data, STREAMS_LONG_POLL_MS="150", STREAMS_SSE_MAX_MS=str(round(seconds * 1_000))) as streams:
        path = streams.new(JSON, b"1")
        with unless_held_up(seconds / 4, partial(streams.head, path)):
            with streams.live(path) as live:
                events = live.rest()
            data_events = [event for event in events if event.kind == "data"]
            controls = [event.control for event in events if event.kind == "control"]
            assert [event.text for event in data_events] == ["[1]"]
            assert len(controls) >= 3
        for control in controls:
            assert (control["streamNextOffset"], control["upToDate"]) == (streams.tail(path), True)
            assert control["streamCursor"].isdigit()
            assert "streamClosed" not in control
        # The reader goes on where it was.
        with streams.live(path, controls[-1]["streamNextOffset"]) as live:
            assert live.event().kind == "control"


@pytest.mark.each_store
@pytest.mark.parametrize("end", ["deleted", "expired"])
def test_the_end_of_a_stream_ends_its_live_reads(patient: Streams, end: str) -> None:
    in_time(partial(read_until_the_end, patient, end), 1)


def read_until_the_end(patient: Streams, end: str, seconds: float) -> None:
    made = time.monotonic()
    path = patient.new(JSON, b"1", window(round(seconds)) if end == "expired" else {})
    with ExitStack() as stack, ThreadPoolExecutor(1) as pool:
        with unless_late(lambda: made, seconds):
            tail = patient.tail(path)
            live = stack.enter_context(patient.live(path, tail))
        polling = pool.submit(lambda: patient.get(path, live="long-poll", offset=tail))
        time.sleep(0.2)
        if end == "deleted":
            assert patient.delete(path).status_code == 204
        # Both come back before the client's patience is over; the server's would last a minute.
        assert polling.result().status_code in (204, 404)
        assert [event.kind for event in live.rest()] in (["control"], ["control", "control"])
    for query in ({}, {"live": "long-poll", "offset": tail}, {"live": "sse", "offset": tail}):
        refused(patient.get(path, **query), "STREAM_NOT_FOUND")


# -- 9. Caching, ETag, cursors ----------------------------------------------------------------------------------------


def etag(streams: Streams, path: str, **query: str) -> str:
    tag: str = streams.get(path, **query).headers["ETag"]
    assert tag.startswith('"')
    assert tag.endswith('"')
    return tag


def test_an_etag_names_stream_start_end_and_closure(streams: Streams) -> None:
    path = streams.new(TEXT, b"abc")
    middle = streams.tail(path)
    tags = [etag(streams, path)]
    assert etag(streams, path) == tags[0]
    tags.append(etag(streams, path, offset=middle))
    streams.post(path, b"def", content_type=TEXT)
    tags += [etag(streams, path), etag(streams, path, offset=middle)]
    streams.close(path)
    tags += [etag(streams, path), etag(streams, path, offset=middle), etag(streams, path, offset=streams.tail(path))]
    other = streams.new(TEXT, b"abcdef")
    streams.close(other)
    tags.append(etag(streams, other))
    assert len(set(tags)) == len(tags)


def test_an_etag_differs_after_delete_and_recreate(streams: Streams) -> None:
    path, tags = streams.path(), []
    for _ in range(3):
        assert streams.put(path, TEXT, b"abc").status_code == 201
        tags.append(etag(streams, path))
        assert streams.get(path, {"If-None-Match": tags[0]}).status_code == (304 if len(tags) == 1 else 200)
        assert streams.delete(path).status_code == 204
    assert len(set(tags)) == 3


def test_an_etag_differs_once_closed_with_no_new_data(streams: Streams) -> None:
    path = streams.new(TEXT)
    open_tags = [etag(streams, path), etag(streams, path, offset=START)]
    streams.close(path)
    answer = streams.get(path, {"If-None-Match": ", ".join(open_tags)})
    assert (answer.status_code, closed(answer)) == (200, True)


IF_NONE_MATCH: dict[str, tuple[Callable[[str], list[str]], int]] = {
    "equal": (lambda tag: [tag], 304),
    "weak": (lambda tag: ["W/" + tag], 304),
    "any": (lambda tag: ["*"], 304),
    "a list with it": (lambda tag: [f'"a", {tag}, "b"'], 304),
    "a list with it, no spaces": (lambda tag: [f'"a",{tag}'], 304),
    "a weak one in a list": (lambda tag: [f'"a", W/{tag}'], 304),
    "on a second line": (lambda tag: ['"a"', tag], 304),
    "another": (lambda tag: ['"other"'], 200),
    "a list without it": (lambda tag: ['"a", W/"b"'], 200),
    "only part of it": (lambda tag: [tag[:-2] + '"'], 200),
    "inside another": (lambda tag: [f'"x{tag[1:-1]}"'], 200),
    "other letters": (lambda tag: [tag.swapcase() + "x"], 200),
    "empty": (lambda tag: [""], 200),
    "nonsense": (lambda tag: ['"""', "W/", ","], 200),
}


@pytest.mark.parametrize("name", IF_NONE_MATCH)
def test_if_none_match(streams: Streams, name: str) -> None:
    given, status = IF_NONE_MATCH[name]
    path = streams.new(JSON, b"1")
    tag = etag(streams, path)
    lines = [b"If-None-Match: " + value.encode() for value in given(tag)]
    answer = raw(streams.server, "GET", path, *lines)
    assert answer.status_code == status
    assert answer.headers["ETag"] == tag
    assert answer.content == (b"[1]" if status == 200 else b"")


def test_a_304_has_no_body_on_the_wire(streams: Streams) -> None:
    path = streams.new(JSON, b"1")
    again = request("GET", path, b"If-None-Match: " + etag(streams, path).encode())
    with Wire(streams.server) as wire:
        wire.send(again + request("GET", path))
        assert [wire.answer().status_code for _ in range(2)] == [304, 200]


def test_heads_and_errors_are_not_stored_by_caches(streams: Streams) -> None:
    path = streams.new()
    assert streams.head(path).headers["Cache-Control"] == "no-store"
    assert "max-age" not in streams.get(streams.path()).headers.get("Cache-Control", "")


CURSOR_EPOCH = datetime(2024, 10, 9, tzinfo=UTC).timestamp()
INTERVAL_SECONDS = 20
JITTER_INTERVALS = 3600 // INTERVAL_SECONDS


def interval() -> int:
    """The cursor of this moment."""
    return int((time.time() - CURSOR_EPOCH) // INTERVAL_SECONDS)


@pytest.mark.parametrize("sent", [None, "", "abc", "-5", "1.5", "0", "1", "0x10"], ids=repr)
def test_a_cursor_is_the_current_interval(streams: Streams, sent: str | None) -> None:
    path = streams.new(JSON, b"1")
    query = {"live": "long-poll", "offset": "-1"} | ({} if sent is None else {"cursor": sent})
    before = interval()
    cursor = int(streams.get(path, **query).headers["Stream-Cursor"])
    assert before <= cursor <= interval()


@pytest.mark.parametrize(("ahead", "offset"), [(0, "-1"), (1, "-1"), (1000, "-1"), (10**12, "-1"), (0, "now")])
def test_a_cursor_at_or_past_the_interval_moves_on(streams: Streams, ahead: int, offset: str) -> None:
    path = streams.new(JSON, b"1")
    sent = interval() + 1 + ahead
    answer = streams.get(path, live="long-poll", offset=offset, cursor=str(sent))
    assert 1 <= int(answer.headers["Stream-Cursor"]) - sent <= JITTER_INTERVALS


def test_cursors_that_move_on_are_spread(streams: Streams) -> None:
    path = streams.new(JSON, b"1")
    sent = str(interval() + 100)
    cursors = {
        streams.get(path, live="long-poll", offset="-1", cursor=sent).headers["Stream-Cursor"] for _ in range(30)
    }
    assert len(cursors) > 3


def test_an_sse_cursor_is_the_current_interval(streams: Streams) -> None:
    path = streams.new(JSON, b"1")
    before = interval()
    with streams.live(path) as live:
        control = live.until_up_to_date()[-1].control
    assert before <= int(control["streamCursor"]) <= interval()


# -- 10. HEAD, DELETE, expiry -----------------------------------------------------------------------------------------


def test_head_tells_the_metadata_and_only_that(streams: Streams) -> None:
    path = streams.new(TEXT, b"abc", {"Stream-TTL": "60"})
    answer = streams.head(path)
    assert (answer.status_code, answer.headers["Content-Type"], answer.headers["Stream-TTL"]) == (200, TEXT, "60")
    assert offset_of(answer) == offset_of(streams.get(path))
    assert not closed(answer)
    streams.close(path)
    assert closed(streams.head(path))


def test_head_answers_have_no_body_on_the_wire(streams: Streams) -> None:
    path = streams.new(TEXT, b"abc")
    missing, bad = streams.path(), ROOT + ".."
    with Wire(streams.server) as wire:
        wire.send(b"".join(request("HEAD", target) for target in (path, missing, bad)) + request("GET", path))
        answers = [wire.answer("HEAD") for _ in range(3)] + [wire.answer()]
    assert [answer.status_code for answer in answers] == [200, 404, 400, 200]
    assert answers[-1].content == b"abc"


def test_delete_takes_everything_away(streams: Streams) -> None:
    path = prepared(streams, is_closed=True)
    assert streams.delete(path).status_code == 204
    assert streams.head(path).status_code == 404
    for answer in (streams.get(path), streams.post(path, b"1"), streams.close(path), streams.delete(path)):
        refused(answer, "STREAM_NOT_FOUND")
    assert streams.put(path, TEXT).status_code == 201
    assert streams.content(path) == b""
    assert offset_of(streams.post(path, b"a", {"Stream-Seq": "1"}, content_type=TEXT)) > START


def begin_sse(streams: Streams, path: str) -> None:
    with streams.live(path, "now") as live:
        live.event()


def test_what_restarts_a_ttl_window_and_what_does_not(streams: Streams) -> None:
    tuple_of = producer("p", 0, 0)
    prepare = {
        "with a tuple": lambda path: streams.post(path, b"1", tuple_of),
        "closed": streams.close,
    }

    def fixed(seconds: int) -> dict[str, str]:
        return {"Stream-Expires-At": datetime.fromtimestamp(time.time() + seconds, UTC).isoformat()}

    restarting = {
        "catch-up": Touch(streams.get),
        "now": Touch(lambda path: streams.get(path, offset="now")),
        "long poll": Touch(lambda path: streams.get(path, offset="now", live="long-poll")),
        "sse": Touch(lambda path: begin_sse(streams, path)),
        "not modified": Touch(lambda path: streams.get(path, {"If-None-Match": "*"})),
        "append": Touch(lambda path: streams.post(path, b"1")),
        "duplicate": Touch(lambda path: streams.post(path, b"1", tuple_of), prepare["with a tuple"]),
        "close": Touch(streams.close),
        "close with a tuple": Touch(lambda path: streams.close(path, tuple_of)),
        "append and close": Touch(lambda path: streams.post(path, b"1", CLOSED)),
        "close again": Touch(streams.close, prepare["closed"]),
        "read closed": Touch(streams.get, prepare["closed"]),
    }
    idle = {
        "nothing": Touch(lambda path: None),
        "HEAD": Touch(streams.head),
        "OPTIONS": Touch(streams.client.options),
        "fixed end, append": Touch(lambda path: streams.post(path, b"1"), headers=fixed),
        "fixed end, read": Touch(streams.get, headers=fixed),
    }
    expected = dict.fromkeys(restarting, True) | dict.fromkeys(idle, False)
    assert alive_after(streams, restarting | idle) == expected


def test_an_expired_stream_is_gone_for_every_method_and_can_be_made_again(streams: Streams) -> None:
    in_time(partial(expire, streams), 1)


def expire(streams: Streams, seconds: float) -> None:
    names = ("GET", "HEAD", "POST", "close", "DELETE", "PUT same", "PUT other")
    paths = {name: streams.new(JSON, b"1", window(round(seconds))) for name in names}
    eventually(lambda: all(streams.head(path).status_code == 404 for path in paths.values()), "all expire")
    assert streams.head(paths["HEAD"]).status_code == 404
    refused(streams.get(paths["GET"]), "STREAM_NOT_FOUND")
    refused(streams.post(paths["POST"], b"2"), "STREAM_NOT_FOUND")
    refused(streams.close(paths["close"]), "STREAM_NOT_FOUND")
    refused(streams.delete(paths["DELETE"]), "STREAM_NOT_FOUND")
    made = time.monotonic()
    assert streams.put(paths["PUT same"], JSON, b"", window(round(seconds))).status_code == 201
    with unless_late(lambda: made, seconds):
        assert streams.messages(paths["PUT same"]) == []
    assert streams.put(paths["PUT other"], TEXT, b"fresh").status_code == 201
    assert streams.content(paths["PUT other"]) == b"fresh"


def is_gone(streams: Streams, path: str) -> bool:
    return streams.head(path).status_code == 404


@pytest.mark.each_store
def test_a_ttl_window_survives_a_restart(tmp_path_factory: pytest.TempPathFactory) -> None:
    with serving(tmp_path_factory.mktemp("window") / "data") as streams:
        in_time(partial(outlive_a_restart, streams), 2)


def outlive_a_restart(streams: Streams, seconds: float) -> None:
    made = time.monotonic()
    idle, used = (streams.new(headers=window(round(seconds))) for _ in range(2))
    ready = time.monotonic()
    time.sleep(seconds * 0.6)
    touched = time.monotonic()
    with unless_late(lambda: made, seconds):
        assert streams.get(used).status_code == 200
    streams.server.restart()
    time.sleep(max(0.0, ready + seconds * 1.1 - time.monotonic()))
    alive = [streams.head(path).status_code == 200 for path in (idle, used)]
    if time.monotonic() > touched + seconds * 0.95:
        raise LateError
    assert alive == [False, True]
    eventually(partial(is_gone, streams, used), "the window that began before the restart ends")


@pytest.mark.each_store
def test_a_stream_survives_a_crash_as_it_was(tmp_path_factory: pytest.TempPathFactory) -> None:
    with serving(tmp_path_factory.mktemp("crash") / "data") as streams:
        path = prepared(streams, is_closed=True)
        gone = streams.new()
        streams.delete(gone)
        before, read = streams.head(path), streams.get(path)
        streams.server.kill()
        streams.server.start()
        after = streams.head(path)
        for header in ("Content-Type", "Stream-Next-Offset", "Stream-Closed"):
            assert after.headers[header] == before.headers[header]
        again = streams.get(path, {"If-None-Match": read.headers["ETag"]})
        assert again.status_code == 304
        assert streams.messages(path) == read.json()
        assert streams.head(gone).status_code == 404


# -- 12. Names --------------------------------------------------------------------------------------------------------

ONE_NAME = {
    "%2F is a slash": ("{}/a%2Fb", "{}/a/b"),
    "%2f is a slash": ("{}/a%2fb", "{}/a/b"),
    "an encoded letter": ("{}/%61", "{}/a"),
    "hex in other letters": ("{}/%C3%A9", "{}/%c3%a9"),
    "an encoded tilde": ("{}/%7Ea", "{}/~a"),
    "a query": ("{}/a", "{}/a?x=1"),
}
TWO_NAMES = {
    "decoded once": ("{}/a%252Fb", "{}/a/b"),
    "a plus is no space": ("{}/a+b", "{}/a%20b"),
    "letters": ("{}/a", "{}/A"),
    "composed and decomposed": ("{}/%C3%A9", "{}/e%CC%81"),
    "an encoded question mark": ("{}/a%3Fb", "{}/a?b"),
    "a dot in front": ("{}/.a", "{}/a"),
    "three dots": ("{}/...", "{}/a"),
    "dots inside": ("{}/a..b", "{}/a.b"),
    "dots that stay encoded": ("{}/%252e%252e", "{}/a"),
    "a longer one": ("{}/a/b", "{}/a"),
}


@pytest.mark.parametrize("name", ONE_NAME | TWO_NAMES)
def test_spellings_of_names(streams: Streams, name: str) -> None:
    base = streams.path()
    one, other = (spelling.format(base) for spelling in (ONE_NAME | TWO_NAMES)[name])
    assert raw(streams.server, "PUT", one, b"Content-Type: text/plain", body=b"one").status_code == 201
    answer = raw(streams.server, "GET", other)
    if name in ONE_NAME:
        assert (answer.status_code, answer.content) == (200, b"one")
    else:
        refused(answer, "STREAM_NOT_FOUND")
        assert raw(streams.server, "GET", one).content == b"one"


LONGEST = {
    "ascii": "a" * 1024,
    "segments": "a/" * 511 + "aa",
    "encoded": "%61" * 1024,
    "two bytes a character": "%C3%A9" * 512,
}


@pytest.mark.parametrize("name", LONGEST)
def test_a_name_of_1024_bytes(streams: Streams, name: str) -> None:
    path = ROOT + LONGEST[name]
    assert raw(streams.server, "PUT", path, body=b"").status_code == 201
    assert raw(streams.server, "GET", path).status_code == 200
    assert raw(streams.server, "DELETE", path).status_code == 204


BAD_NAMES = {
    "1025 bytes": "a" * 1025,
    "1025 bytes in segments": "a/" * 512 + "a",
    "1025 bytes, encoded": "%61" * 1025,
    "1026 bytes, fewer characters": "%C3%A9" * 513,
    "dot": ".",
    "dots": "..",
    "dot segment": "a/./b",
    "dots segment": "a/../b",
    "dots at the end": "a/..",
    "dots in front": "../a",
    "encoded dot": "%2e",
    "encoded dots": "%2E%2e",
    "half encoded dots": ".%2e",
    "encoded dots segment": "a/%2e%2e/b",
    "dots between encoded slashes": "a%2F..%2Fb",
    "all encoded": "a%2F%2E%2E%2Fb",
    "dots before an encoded slash": "..%2Fa",
    "0xff": "%FF",
    "half a character": "a%C3",
    "overlong slash": "%C0%AF",
    "overlong dot": "%C0%AE%C0%AE",
    "surrogate": "%ED%A0%80",
    "beyond Unicode": "%F4%90%80%80",
}


@pytest.mark.parametrize("method", ["PUT", "POST", "GET", "HEAD", "DELETE"])
@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_bad_name_is_refused(streams: Streams, name: str, method: str) -> None:
    body = b"1" if method in ("PUT", "POST") else None
    answer = raw(streams.server, method, ROOT + BAD_NAMES[name], b"Content-Type: application/json", body=body)
    if method == "HEAD":
        assert answer.status_code == 400
    else:
        refused(answer, "INVALID_REQUEST")


@pytest.mark.parametrize("path", ["/v1/stream/", "/v1/stream"])
def test_a_stream_has_a_name(streams: Streams, path: str) -> None:
    answer = streams.put(path)
    is_problem(answer)
    assert answer.status_code in (400, 404, 405)


@pytest.mark.parametrize("method", ["PUT", "POST", "GET", "HEAD", "DELETE"])
@pytest.mark.parametrize("name", ["__ds/unknown", "__ds/unknown/deeper", "__ds/", "%5F%5Fds/x", "__ds%2Fx"])
def test_reserved_paths_are_not_streams(streams: Streams, name: str, method: str) -> None:
    body = b"1" if method in ("PUT", "POST") else None
    answer = raw(streams.server, method, ROOT + name, b"Content-Type: application/json", body=body)
    assert answer.status_code == 404


# -- 12. Headers of every answer --------------------------------------------------------------------------------------

Ask = Callable[[Streams], httpx.Response]


def ask_sse(streams: Streams) -> httpx.Response:
    with streams.live(streams.new()) as live:
        return live.response


def ask_raw(method: str, path: str, *headers: bytes) -> Ask:
    return lambda streams: raw(streams.server, method, path, *headers)


ANSWERS: dict[str, tuple[int, Ask]] = {
    "PUT 201": (201, lambda s: s.put(s.path())),
    "PUT 200": (200, lambda s: s.put(s.new())),
    "PUT 409": (409, lambda s: s.put(s.new(), TEXT)),
    "PUT 400": (400, lambda s: s.put(s.path(), JSON, b"{")),
    "POST 204": (204, lambda s: s.post(s.new(), b"1")),
    "POST 200": (200, lambda s: s.post(s.new(), b"1", producer("p", 0, 0))),
    "POST 204 replay": (204, lambda s: s.keyed(prepared(s), "known", b"1")),
    "POST 400": (400, lambda s: s.post(s.new(), b"")),
    "POST 403": (403, lambda s: s.post(prepared(s), b"1", STALE)),
    "POST 404": (404, lambda s: s.post(s.path(), b"1")),
    "POST 409": (409, lambda s: s.post(s.new(), b"1", content_type=TEXT)),
    "POST 413": (413, lambda s: s.post(s.new(), LARGE)),
    "GET 200": (200, lambda s: s.get(s.new())),
    "GET now": (200, lambda s: s.get(s.new(), offset="now")),
    "GET 304": (304, lambda s: s.get(s.new(), {"If-None-Match": "*"})),
    "GET 400": (400, lambda s: s.get(s.new(), offset="bad")),
    "GET 400 name": (400, ask_raw("GET", ROOT + "..")),
    "GET 404": (404, lambda s: s.get(s.path())),
    "GET long-poll 200": (200, lambda s: s.get(s.new(JSON, b"1"), live="long-poll", offset="-1")),
    "GET long-poll 204": (204, lambda s: s.get(s.new(), live="long-poll", offset="now")),
    "GET sse": (200, ask_sse),
    "HEAD 200": (200, lambda s: s.head(s.new())),
    "HEAD 404": (404, lambda s: s.head(s.path())),
    "DELETE 204": (204, lambda s: s.delete(s.new())),
    "DELETE 404": (404, lambda s: s.delete(s.path())),
    "PATCH 405": (405, lambda s: s.client.patch(s.new())),
    "OPTIONS stream": (204, lambda s: s.client.options(s.new())),
    "OPTIONS no stream": (204, lambda s: s.client.options(s.path())),
    "reserved 404": (404, lambda s: s.get(ROOT + "__ds/unknown")),
    "outside 404": (404, lambda s: s.get("/nowhere")),
    "root 404": (404, lambda s: s.get("/")),
    "v1 404": (404, lambda s: s.get("/v1/nowhere")),
    "malformed 400": (400, ask_raw("GET", ROOT + "x", b"Bad Header: 1")),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_every_answer_carries_the_security_headers(streams: Streams, name: str) -> None:
    status, ask = ANSWERS[name]
    answer = ask(streams)
    assert answer.status_code == status
    assert answer.headers.get("X-Content-Type-Options") == "nosniff"
    assert answer.headers.get("Cross-Origin-Resource-Policy") in ("cross-origin", "same-site", "same-origin")
    assert answer.headers.get("X-Request-Id")


def test_every_answer_has_a_request_id_of_its_own(streams: Streams) -> None:
    path = streams.new()
    answers = [streams.head(path) for _ in range(20)] + [streams.get(streams.path()) for _ in range(20)]
    assert len({answer.headers["X-Request-Id"] for answer in answers}) == 40


ALLOWED_HEADERS = {
    *("content-type", "authorization", "if-none-match", "stream-ttl", "stream-expires-at", "stream-seq"),
    *("stream-closed", "stream-forked-from", "stream-fork-offset", "stream-fork-sub-offset"),
    *("producer-id", "producer-epoch", "producer-seq", "idempotency-key"),
}
EXPOSED_HEADERS = {
    *("stream-ttl", "stream-expires-at", "stream-closed", "stream-next-offset", "stream-up-to-date", "stream-cursor"),
    *("stream-sse-data-encoding", "producer-epoch", "producer-seq", "producer-expected-seq", "producer-received-seq"),
    *("idempotency-replayed", "etag", "location", "content-type", "vary"),
}


def listed(answer: httpx.Response, header: str) -> set[str]:
    return {part.strip().lower() for part in answer.headers[header].split(",")}


PAGE = "http://localhost:3000"
"""The origin of a page that may call a server without credentials: one of this machine."""


@pytest.mark.parametrize("existing", [True, False], ids=["stream", "no stream"])
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "HEAD"])
def test_a_preflight_allows_methods_and_headers(streams: Streams, method: str, existing: bool) -> None:
    path = streams.new() if existing else streams.path()
    asked = {"Origin": PAGE, "Access-Control-Request-Method": method}
    asked["Access-Control-Request-Headers"] = ",".join(sorted(ALLOWED_HEADERS))
    answer = streams.client.options(path, headers=asked)
    assert answer.status_code in (200, 204)
    assert answer.headers["Access-Control-Allow-Origin"] == PAGE
    assert listed(answer, "Access-Control-Allow-Methods") >= {"get", "post", "put", "delete", "head", "options"}
    assert listed(answer, "Access-Control-Allow-Headers") >= ALLOWED_HEADERS


# Outside of the streams, not understood as a request, or sent as bytes without an Origin: nobody shares the answer.
UNSHARED = ("OPTIONS", "outside", "root", "v1", "malformed", "GET 400 name")


@pytest.mark.parametrize("name", [name for name in ANSWERS if not name.startswith(UNSHARED)])
def test_a_browser_may_read_every_stream_answer(streams: Streams, name: str) -> None:
    streams.client.headers["Origin"] = PAGE
    try:
        answer = ANSWERS[name][1](streams)
    finally:
        del streams.client.headers["Origin"]
    assert answer.headers["Access-Control-Allow-Origin"] == PAGE
    assert listed(answer, "Access-Control-Expose-Headers") >= EXPOSED_HEADERS


@pytest.mark.parametrize("method", ["PATCH", "TRACE", "PROPFIND", "LOCK", "REPORT"])
@pytest.mark.parametrize("existing", [True, False], ids=["stream", "no stream"])
def test_other_methods_are_not_allowed(streams: Streams, method: str, existing: bool) -> None:
    path = streams.new() if existing else streams.path()
    answer = streams.client.request(method, path)
    refused(answer, "METHOD_NOT_ALLOWED")
    assert listed(answer, "Allow") >= {"get", "post", "put", "delete", "head", "options"}


# -- 12. Problem documents --------------------------------------------------------------------------------------------

PROBLEM_OF: dict[str, Ask] = {
    "IDEMPOTENCY_MISMATCH": lambda s: s.keyed(prepared(s), "known", b"2"),
    "INVALID_IDEMPOTENCY_KEY": lambda s: s.keyed(s.new(), "k" * 257),
    "STREAM_NOT_FOUND": lambda s: s.get(s.path()),
    "STREAM_CLOSED": lambda s: s.post(prepared(s, is_closed=True), b"1"),
    "STREAM_EXISTS": lambda s: s.put(s.new(), TEXT),
    "CONTENT_TYPE_MISMATCH": lambda s: s.post(s.new(), b"1", content_type=TEXT),
    "SEQUENCE_CONFLICT": lambda s: s.post(prepared(s), b"1", LATE_SEQ),
    "PRODUCER_GAP": lambda s: s.post(prepared(s), b"1", GAP),
    "PRODUCER_FENCED": lambda s: s.post(prepared(s), b"1", STALE),
    "INVALID_PRODUCER": lambda s: s.post(prepared(s), b"1", MALFORMED),
    "INVALID_OFFSET": lambda s: s.get(s.new(), offset="bad"),
    "INVALID_EXPIRY": lambda s: s.put(s.path(), headers={"Stream-TTL": "x"}),
    "INVALID_JSON": lambda s: s.post(s.new(), b"{"),
    "EMPTY_BODY": lambda s: s.post(s.new(), b""),
    "MISSING_CONTENT_TYPE": lambda s: s.post(s.new(), b"1", content_type=None),
    "INVALID_REQUEST": ask_raw("GET", ROOT + ".."),
    "METHOD_NOT_ALLOWED": lambda s: s.client.patch(s.new()),
    "PAYLOAD_TOO_LARGE": lambda s: s.post(s.new(), LARGE),
}


@pytest.mark.parametrize("code", PROBLEM_OF)
def test_a_problem_is_told_in_the_words_of_the_table(streams: Streams, code: str) -> None:
    answer = PROBLEM_OF[code](streams)
    refused(answer, code)
    assert int(answer.headers["Content-Length"]) == len(answer.content)
    assert isinstance(answer.json().get("detail", ""), str)
