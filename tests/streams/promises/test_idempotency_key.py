"""Idempotency-Key on POST: the seed's scenarios, each row of the contract's table, each decision under it.

All that is tested here is seen from outside: a real server, its answers, and what it still knows after a crash.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import httpx
import pytest

from tests.harness.together import at_once, eventually, in_time, unless_late
from tests.streams.wire import (
    CLOSED,
    JSON,
    KEY,
    OCTETS,
    REPLAYED,
    START,
    TEXT,
    Streams,
    Touch,
    Wire,
    alive_after,
    offset_of,
    producer,
    raw,
    raw_append,
    refused,
    request,
    serving,
    window,
)

BODY_LIMIT = 65_536
KEPT_HEADERS = ("Stream-Next-Offset", "Stream-Closed", "Producer-Epoch", "Producer-Seq")


@pytest.fixture(scope="module")
def streams(tmp_path_factory: pytest.TempPathFactory, store_kind: str) -> Iterator[Streams]:
    data = tmp_path_factory.mktemp("idempotency") / "data"
    with serving(data, MAX_BODY_BYTES=str(BODY_LIMIT), STREAMS_LONG_POLL_MS="60000", SWEEP_INTERVAL_MS="200") as served:
        yield served


def kept(answer: httpx.Response) -> tuple[object, ...]:
    """What a replay must repeat of the first answer."""
    return (answer.status_code, answer.content, *(answer.headers.get(name) for name in KEPT_HEADERS))


def is_first(answer: httpx.Response) -> httpx.Response:
    """A success that is no replay."""
    assert answer.status_code in (200, 204), answer.text
    assert REPLAYED not in answer.headers
    return answer


def is_replay(answer: httpx.Response, first: httpx.Response) -> None:
    assert kept(answer) == kept(first), answer.text
    assert answer.headers.get(REPLAYED) == "true"


# -- The seed's own scenarios -----------------------------------------------------------------------------------------


class Append(NamedTuple):
    """One `action: append` of the seed's tests, with what it expects."""

    data: bytes
    key: str
    code: str = ""
    replayed: bool = False


SCENARIOS = {
    "idempotency-key-deduplication": (
        Append(b'{"event": "test"}', "test-key-123"),
        Append(b'{"event": "test"}', "test-key-123", replayed=True),
    ),
    "idempotency-key-different-body-conflict": (
        Append(b'{"event": "first"}', "test-key-456"),
        Append(b'{"event": "different"}', "test-key-456", code="IDEMPOTENCY_MISMATCH"),
    ),
}


@pytest.mark.parametrize("created_as", [None, JSON, TEXT, OCTETS])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_seed(streams: Streams, scenario: str, created_as: str | None) -> None:
    path = streams.path()
    assert streams.put(path, created_as).status_code == 201
    offset = None
    for append in SCENARIOS[scenario]:
        answer = streams.keyed(path, append.key, append.data, content_type=created_as or OCTETS)
        if append.code:
            refused(answer, append.code)
            continue
        assert answer.status_code == 204
        assert answer.headers.get(REPLAYED) == ("true" if append.replayed else None)
        assert offset in (None, offset_of(answer))
        offset = offset_of(answer)
    only = SCENARIOS[scenario][0].data
    assert streams.tail(path) == offset
    assert streams.content(path).strip(b"[] \n") == only


# -- The table, row by row --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"1", b'{"a":1}', b"[1,2]"])
def test_row_01_without_a_key_nothing_changes(streams: Streams, body: bytes) -> None:
    path = streams.new()
    answers = [is_first(streams.post(path, body)) for _ in range(3)]
    assert {answer.status_code for answer in answers} == {204}
    assert len({offset_of(answer) for answer in answers}) == 3


def test_row_02_the_first_request_is_processed_as_usual(streams: Streams) -> None:
    path, plain = streams.new(), streams.new()
    assert kept(is_first(streams.keyed(path, "k"))) == kept(streams.post(plain, b"1"))
    assert streams.messages(path) == [1]


class Repeated(NamedTuple):
    """A request that is sent twice under one key, and what happens to the stream in between."""

    body: bytes
    headers: Mapping[str, str]
    status: int
    between: Callable[[Streams, str], object] = lambda streams, path: None


REPEATED = {
    "append": Repeated(b"1", {}, 204),
    "append, later appends": Repeated(b"1", {}, 204, lambda s, path: s.post(path, b"[2,3]")),
    "append, later close": Repeated(b"1", {}, 204, lambda s, path: s.close(path)),
    "batch": Repeated(b"[1,2,3]", {}, 204),
    "append and close": Repeated(b"1", CLOSED, 204),
    "close only": Repeated(b"", CLOSED, 204),
    "Stream-Seq": Repeated(b"1", {"Stream-Seq": "5"}, 204, lambda s, path: s.post(path, b"2", {"Stream-Seq": "6"})),
    "producer": Repeated(b"1", producer("p", 3, 0), 200),
    "producer, later sequences": Repeated(
        b"1", producer("p", 3, 0), 200, lambda s, path: s.post(path, b"2", producer("p", 3, 1))
    ),
    "producer, later epoch": Repeated(
        b"1", producer("p", 3, 0), 200, lambda s, path: s.post(path, b"2", producer("p", 4, 0))
    ),
    "producer append and close": Repeated(b"1", producer("p", 0, 0) | CLOSED, 200),
    "producer close only": Repeated(b"", producer("p", 0, 0) | CLOSED, 204),
}


@pytest.mark.parametrize("name", REPEATED)
def test_rows_03_and_04_a_repeat_gets_the_kept_answer(streams: Streams, name: str) -> None:
    body, headers, status, between = REPEATED[name]
    path = streams.new()
    first = is_first(streams.keyed(path, "k", body, headers))
    assert first.status_code == status
    between(streams, path)
    tail, content = streams.tail(path), streams.content(path)
    for _ in range(2):
        is_replay(streams.keyed(path, "k", body, headers), first)
    assert (streams.tail(path), streams.content(path)) == (tail, content)


def test_row_03_the_offset_is_that_of_the_first_time_not_todays_tail(streams: Streams) -> None:
    path = streams.new()
    first = streams.keyed(path, "k")
    streams.post(path, b"2")
    assert offset_of(streams.keyed(path, "k")) == offset_of(first) < streams.tail(path)


def test_row_05_errors_never_carry_the_replay_header(streams: Streams) -> None:
    path = streams.new()
    is_first(streams.keyed(path, "k"))
    for _ in range(2):
        refused(streams.keyed(path, "k", b"2"), "IDEMPOTENCY_MISMATCH")
        refused(streams.keyed(path, "other", b"{"), "INVALID_JSON")
        refused(streams.keyed(path, "x" * 257), "INVALID_IDEMPOTENCY_KEY")


def test_row_06_after_a_mismatch_the_kept_answer_stays(streams: Streams) -> None:
    path = streams.new()
    first = streams.keyed(path, "k")
    refused(streams.keyed(path, "k", b"2"), "IDEMPOTENCY_MISMATCH")
    is_replay(streams.keyed(path, "k"), first)
    refused(streams.keyed(path, "k", b"2"), "IDEMPOTENCY_MISMATCH")
    assert streams.messages(path) == [1]


def test_row_07_keys_belong_to_one_stream(streams: Streams) -> None:
    paths = [streams.new(), streams.new(), streams.new(TEXT)]
    for path in paths[:2]:
        is_first(streams.keyed(path, "k"))
    is_first(streams.keyed(paths[2], "k", b"other body", content_type=TEXT))
    assert [streams.messages(path) for path in paths[:2]] == [[1], [1]]


def test_row_08_keys_go_by_the_age_of_the_first_commit(tmp_path_factory: pytest.TempPathFactory) -> None:
    in_time(partial(outlive_two_keys, tmp_path_factory), 1.2)


def outlive_two_keys(tmp_path_factory: pytest.TempPathFactory, seconds: float) -> None:
    data = tmp_path_factory.mktemp("age") / "data"
    with serving(data, STREAMS_IDEMPOTENCY_TTL_MS=str(round(seconds * 1_000)), SWEEP_INTERVAL_MS="50") as streams:
        path = streams.new()
        made = time.monotonic()
        first = streams.keyed(path, "k")
        other = streams.keyed(path, "other", b"2")
        with unless_late(lambda: made, seconds):
            is_replay(streams.keyed(path, "k"), first)
            is_replay(streams.keyed(path, "other", b"2"), other)
        # Replays on the way do not make the record younger.
        eventually(lambda: REPLAYED not in streams.keyed(path, "k").headers, "the key is forgotten")
        assert streams.messages(path) == [1, 2, 1]
        # And a forgotten key knows no other body.
        eventually(lambda: streams.keyed(path, "other", b"3").status_code == 204, "the other key is forgotten")
        assert streams.messages(path) == [1, 2, 1, 3]


def test_row_08_by_default_a_key_outlives_many_sweeps(streams: Streams) -> None:
    path = streams.new()
    first = streams.keyed(path, "k")
    time.sleep(0.7)  # the fixture's server sweeps five times a second
    is_replay(streams.keyed(path, "k"), first)


@pytest.mark.parametrize(
    "key", ["k", "K" * 256, "~" * 255 + "!", "0", "-", "a b", "550e8400-e29b-41d4-a716-446655440000"]
)
def test_row_09_keys_of_1_to_256_characters(streams: Streams, key: str) -> None:
    path = streams.new()
    first = is_first(streams.keyed(path, key))
    is_replay(streams.keyed(path, key), first)


@pytest.mark.parametrize("length", [257, 258, 1000, 8000])
def test_row_09_longer_keys_are_refused(streams: Streams, length: int) -> None:
    path = streams.new()
    refused(streams.keyed(path, "k" * length), "INVALID_IDEMPOTENCY_KEY")
    assert streams.tail(path) == START


def test_row_09_keys_are_case_sensitive(streams: Streams) -> None:
    path = streams.new()
    is_first(streams.keyed(path, "Key"))
    is_first(streams.keyed(path, "key"))
    refused(streams.keyed(path, "KEY", b"{"), "INVALID_JSON")
    is_first(streams.keyed(path, "KEY", b"2"))
    assert streams.messages(path) == [1, 1, 2]


CONTROLS = [*range(1, 9), 11, 12, *range(14, 32), 127]


@pytest.mark.parametrize("octet", CONTROLS, ids=lambda octet: f"0x{octet:02x}")
def test_row_10_control_characters_are_refused(streams: Streams, octet: int) -> None:
    path = streams.new()
    answer = raw_append(streams.server, path, b"Idempotency-Key: a%cb" % octet)
    # HTTP itself forbids these in a header, so the parser may speak first.
    assert answer.status_code == 400
    assert answer.json()["code"] in ("INVALID_IDEMPOTENCY_KEY", "INVALID_REQUEST")
    assert REPLAYED not in answer.headers
    assert streams.tail(path) == START


def listed(answer: httpx.Response, name: str) -> set[str]:
    return {part.strip().lower() for part in answer.headers.get(name, "").split(",")}


def test_row_11_a_client_in_a_browser_may_send_the_key_and_see_the_replay(streams: Streams) -> None:
    path = streams.new()
    asked = {"Origin": "http://localhost:3000", "Access-Control-Request-Method": "POST"}
    preflight = streams.client.options(path, headers=asked | {"Access-Control-Request-Headers": "idempotency-key"})
    assert preflight.status_code in (200, 204)
    assert "idempotency-key" in listed(preflight, "Access-Control-Allow-Headers")
    answers = [streams.keyed(path, "k", headers={"Origin": "http://localhost:3000"}) for _ in range(2)]
    for answer in answers:
        assert "idempotency-replayed" in listed(answer, "Access-Control-Expose-Headers")
        assert answer.headers["Access-Control-Allow-Origin"] == "http://localhost:3000"
    is_replay(answers[1], answers[0])


# -- Validation -------------------------------------------------------------------------------------------------------

SAME_KEY = {
    "quoted": (b'"k1"', b"k1"),
    "quoted, outer spaces": (b'  "k1"  ', b"k1"),
    "outer spaces": (b"   k1   ", b"k1"),
    "outer tabs": (b"\t k1 \t", b"k1"),
    "no space after the colon": (b"k1", b" k1"),
    "escaped quote": (rb'"a\"b"', b'a"b'),
    "escaped backslash": (rb'"a\\b"', rb"a\b"),
    "quoted space": (b'" "', rb'" "'),
    "256 and the quotes": (b'"%s"' % (b"k" * 256), b"k" * 256),
    "256 of which some escaped": (rb'"%s\""' % (b"k" * 255), b"k" * 255 + b'"'),
    "quoted comma": (b'"a,b"', b"a,b"),
}


@pytest.mark.parametrize("name", SAME_KEY)
def test_one_key_in_two_spellings(streams: Streams, name: str) -> None:
    path = streams.new()
    one, other = (b"Idempotency-Key:" + spelling for spelling in SAME_KEY[name])
    first = is_first(raw_append(streams.server, path, one))
    is_replay(raw_append(streams.server, path, other), first)
    is_replay(raw_append(streams.server, path, one), first)
    refused(raw_append(streams.server, path, other, body=b"2"), "IDEMPOTENCY_MISMATCH")


DIFFERENT_KEYS = {
    "case": (b"k1", b"K1"),
    "only an opening quote": (b'"k1', b"k1"),
    "only a closing quote": (b'k1"', b"k1"),
    "single quotes": (b"'k1'", b"k1"),
    "quoted twice": (b'""k1""', b'"k1"'),
    "an escape that is none": (rb'"k\1"', rb"k\1"),
    "the same escape, dropped": (rb'"k\1"', b"k1"),
    "a quote inside": (b'"a"b"', b'a"b'),
    "an escaped closing quote": (rb'"k1\"', rb"k1\""),
    "parameters": (b'"k1";v=1', b"k1"),
    "two strings": (b'"k1", "k2"', b"k1"),
    "inner outer spaces": (b'" k1 "', b"k1"),
    "a token with parameters": (b"k1;v=1", b"k1"),
    "a leading zero": (b"01", b"1"),
    "percent encoding": (b"%6b", b"k"),
}


@pytest.mark.parametrize("name", DIFFERENT_KEYS)
def test_two_keys(streams: Streams, name: str) -> None:
    path = streams.new()
    for number, spelling in enumerate(DIFFERENT_KEYS[name]):
        is_first(raw_append(streams.server, path, b"Idempotency-Key: " + spelling, body=b"%d" % number))
    assert streams.messages(path) == [0, 1]


INVALID_KEYS = {
    "empty": [b"Idempotency-Key:"],
    "only a space": [b"Idempotency-Key:  "],
    "only tabs": [b"Idempotency-Key: \t\t"],
    "empty string": [b'Idempotency-Key: ""'],
    "tab inside": [b"Idempotency-Key: a\tb"],
    "tab inside quotes": [b'Idempotency-Key: "a\tb"'],
    "257": [b"Idempotency-Key: " + b"k" * 257],
    "257 in quotes": [b'Idempotency-Key: "%s"' % (b"k" * 257)],
    # 1 + 254 + 2 bytes as they stand: one too many, though a whole string of them would be unwrapped to 255.
    "an escape in half a quote": [rb'Idempotency-Key: "%s\"' % (b"k" * 254)],
    "latin-1": ["Idempotency-Key: é".encode("latin-1")],
    "utf-8": ["Idempotency-Key: é".encode()],
    "utf-8 in quotes": ['Idempotency-Key: "ключ"'.encode()],
    "emoji": ["Idempotency-Key: 🔑".encode()],
    "no-break space": [b"Idempotency-Key: a\xa0b"],
    "only a no-break space": [b"Idempotency-Key: \xa0"],
    "0x80": [b"Idempotency-Key: \x80"],
    "0xff": [b"Idempotency-Key: \xff"],
    "twice": [b"Idempotency-Key: a", b"Idempotency-Key: b"],
    "twice the same": [b"Idempotency-Key: a", b"Idempotency-Key: a"],
    "twice in other letters": [b"idempotency-key: a", b"IDEMPOTENCY-KEY: b"],
    "twice, one empty": [b"Idempotency-Key: a", b"Idempotency-Key:"],
    "twice, far apart": [b"Idempotency-Key: a", b"X-Other: 1", b"Idempotency-Key: a"],
}


@pytest.mark.parametrize("name", INVALID_KEYS)
def test_an_invalid_key_is_refused_before_anything_is_stored(streams: Streams, name: str) -> None:
    path = streams.new()
    refused(raw_append(streams.server, path, *INVALID_KEYS[name]), "INVALID_IDEMPOTENCY_KEY")
    refused(raw(streams.server, "POST", path, b"Stream-Closed: true", *INVALID_KEYS[name]), "INVALID_IDEMPOTENCY_KEY")
    after = streams.head(path)
    assert (offset_of(after), after.headers.get("Stream-Closed")) == (START, None)


def test_a_folded_key_is_refused_or_read_with_a_space(streams: Streams) -> None:
    path = streams.new()
    answer = raw_append(streams.server, path, b"Idempotency-Key: a\r\n b")
    if answer.status_code == 400:
        assert answer.json()["code"] in ("INVALID_IDEMPOTENCY_KEY", "INVALID_REQUEST")
        assert streams.tail(path) == START
    else:
        first = is_first(answer)
        is_replay(streams.keyed(path, "a b"), first)
        is_first(streams.keyed(path, "ab"))


def test_a_header_name_is_case_blind(streams: Streams) -> None:
    path = streams.new()
    first = is_first(raw_append(streams.server, path, b"idempotency-key: k"))
    is_replay(raw_append(streams.server, path, b"IDEMPOTENCY-KEY: k"), first)


# -- Same request -----------------------------------------------------------------------------------------------------


class Pair(NamedTuple):
    """A first request under a key, and a second one that is or is not the same."""

    first: tuple[bytes, Mapping[str, str]]
    second: tuple[bytes, Mapping[str, str]]


TUPLE = producer("p", 0, 0)

SAME_REQUEST = {
    "other letters of the close flag": Pair((b"1", {"Stream-Closed": "true"}), (b"1", {"Stream-Closed": "TRUE"})),
    "a close flag that counts as absent": Pair((b"1", {}), (b"1", {"Stream-Closed": "false"})),
    "another Stream-Seq": Pair((b"1", {"Stream-Seq": "5"}), (b"1", {"Stream-Seq": "1"})),
    "Stream-Seq left out": Pair((b"1", {"Stream-Seq": "5"}), (b"1", {})),
    "Stream-Seq added": Pair((b"1", {}), (b"1", {"Stream-Seq": "5"})),
    "parameters of the content type": Pair((b"1", {}), (b"1", {"Content-Type": "application/json; charset=utf-8"})),
    "another content type": Pair((b"1", {}), (b"1", {"Content-Type": TEXT})),
    "another content type, closed": Pair((b"1", CLOSED), (b"1", {"Content-Type": TEXT} | CLOSED)),
    "another user agent": Pair((b"1", {"User-Agent": "a"}), (b"1", {"User-Agent": "b", "Accept": "text/html"})),
    "close only with a content type": Pair((b"", CLOSED), (b"", {"Content-Type": TEXT} | CLOSED)),
    "headers that a POST does not know": Pair((b"1", {}), (b"1", {"Stream-TTL": "x", "If-None-Match": "*"})),
}


@pytest.mark.parametrize("name", SAME_REQUEST)
def test_the_same_request(streams: Streams, name: str) -> None:
    path = streams.new()
    (body, headers), (other_body, other_headers) = SAME_REQUEST[name]
    first = is_first(streams.keyed(path, "k", body, headers))
    is_replay(streams.keyed(path, "k", other_body, other_headers), first)


def test_the_same_bytes_in_other_framing_are_the_same_request(streams: Streams) -> None:
    path = streams.new()
    body = b"[1, 2, 3]"
    first = is_first(streams.keyed(path, "k", body))
    is_replay(streams.post(path, iter([body[:1], body[1:7], body[7:]]), {KEY: "k"}), first)
    is_replay(streams.post(path.replace("-", "%2D") + "?unknown=1", body, {KEY: "k"}), first)


OTHER_REQUEST = {
    "another body": Pair((b"1", {}), (b"2", {})),
    "a longer body": Pair((b"1", {}), (b"11", {})),
    "a final newline": Pair((b"1", {}), (b"1\n", {})),
    "JSON with another space": Pair((b'{"a":1}', {}), (b'{"a": 1}', {})),
    "JSON in another order": Pair((b'{"a":1,"b":2}', {}), (b'{"b":2,"a":1}', {})),
    "JSON of the same number": Pair((b"1.0", {}), (b"1.00", {})),
    "JSON with another escape": Pair((b'"A"', {}), (rb'"\u0041"', {})),
    "an array of the one message": Pair((b"1", {}), (b"[1]", {})),
    "invalid JSON": Pair((b"1", {}), (b"{", {})),
    "an empty array": Pair((b"1", {}), (b"[]", {})),
    "another body and content type": Pair((b"1", {}), (b"2", {"Content-Type": TEXT})),
    "another body and a stale Stream-Seq": Pair((b"1", {"Stream-Seq": "5"}), (b"2", {"Stream-Seq": "1"})),
    "the close flag added": Pair((b"1", {}), (b"1", CLOSED)),
    "the close flag left out": Pair((b"1", CLOSED), (b"1", {})),
    "only the close": Pair((b"1", CLOSED), (b"", CLOSED)),
    "a body with the close": Pair((b"", CLOSED), (b"1", CLOSED)),
    "another body, closed": Pair((b"1", CLOSED), (b"2", CLOSED)),
}


@pytest.mark.parametrize("name", OTHER_REQUEST)
def test_another_request(streams: Streams, name: str) -> None:
    path = streams.new()
    (body, headers), (other_body, other_headers) = OTHER_REQUEST[name]
    first = is_first(streams.keyed(path, "k", body, headers))
    state = kept(streams.head(path))
    refused(streams.keyed(path, "k", other_body, other_headers), "IDEMPOTENCY_MISMATCH")
    assert kept(streams.head(path)) == state
    is_replay(streams.keyed(path, "k", body, headers), first)


# -- What is kept -----------------------------------------------------------------------------------------------------


def busy_stream(streams: Streams) -> str:
    """A stream with a Stream-Seq and a producer, so that every kind of refusal can be had."""
    path = streams.new()
    assert streams.post(path, b"0", {"Stream-Seq": "5"}).status_code == 204
    assert streams.post(path, b"0", producer("p", 5, 0)).status_code == 200
    return path


class Refusal(NamedTuple):
    """A request that is refused, and the code it is refused with."""

    code: str
    body: bytes
    headers: Mapping[str, str]
    content_type: str | None = JSON


REFUSALS = {
    "empty body": Refusal("EMPTY_BODY", b"", {}),
    "no content type": Refusal("MISSING_CONTENT_TYPE", b"1", {}, None),
    "too large": Refusal("PAYLOAD_TOO_LARGE", b"1" * (BODY_LIMIT + 1), {}),
    "another content type": Refusal("CONTENT_TYPE_MISMATCH", b"1", {}, TEXT),
    "invalid JSON": Refusal("INVALID_JSON", b"{", {}),
    "empty array": Refusal("INVALID_JSON", b"[]", {}),
    "invalid JSON with a close": Refusal("INVALID_JSON", b"{", CLOSED),
    "stale Stream-Seq": Refusal("SEQUENCE_CONFLICT", b"1", {"Stream-Seq": "5"}),
    "gap": Refusal("PRODUCER_GAP", b"1", producer("p", 5, 2)),
    "gap of a new producer": Refusal("PRODUCER_GAP", b"1", producer("q", 0, 1)),
    "gap with a close": Refusal("PRODUCER_GAP", b"", producer("p", 5, 2) | CLOSED),
    "fenced": Refusal("PRODUCER_FENCED", b"1", producer("p", 4, 0)),
    "epoch begun in the middle": Refusal("INVALID_PRODUCER", b"1", producer("p", 6, 1)),
    "half a tuple": Refusal("INVALID_PRODUCER", b"1", {"Producer-Id": "p"}),
    "malformed epoch": Refusal("INVALID_PRODUCER", b"1", producer("p", "x", 0)),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_keeps_nothing(streams: Streams, name: str) -> None:
    code, body, headers, content_type = REFUSALS[name]
    path = busy_stream(streams)
    tail = streams.tail(path)
    for _ in range(2):
        answer = streams.keyed(path, "k", body, headers, content_type=content_type)
        if name == "empty array":  # the contract gives the status and leaves the code open
            assert answer.status_code == 400
        else:
            refused(answer, code)
    assert streams.tail(path) == tail
    # The key is free: even for another request.
    first = is_first(streams.keyed(path, "k", b"7"))
    is_replay(streams.keyed(path, "k", b"7"), first)
    assert streams.messages(path) == [0, 0, 7]


def test_a_refusal_for_a_missing_stream_keeps_nothing(streams: Streams) -> None:
    path = streams.path()
    refused(streams.keyed(path, "k", b"1"), "STREAM_NOT_FOUND")
    assert streams.put(path).status_code == 201
    is_first(streams.keyed(path, "k", b"2"))


def test_a_refusal_for_a_closed_stream_keeps_nothing(streams: Streams) -> None:
    path = streams.new()
    streams.close(path)
    for body in (b"1", b"2", b"1"):
        refused(streams.keyed(path, "k", body), "STREAM_CLOSED")
    is_first(streams.keyed(path, "k", b"", CLOSED))


def test_a_refusal_mended_by_the_world_is_accepted_unchanged(streams: Streams) -> None:
    path = busy_stream(streams)
    gap = producer("p", 5, 2)
    refused(streams.keyed(path, "k", b"2", gap), "PRODUCER_GAP")
    assert streams.post(path, b"1", producer("p", 5, 1)).status_code == 200
    first = is_first(streams.keyed(path, "k", b"2", gap))
    is_replay(streams.keyed(path, "k", b"2", gap), first)
    assert streams.messages(path) == [0, 0, 1, 2]


# -- Where it is looked up --------------------------------------------------------------------------------------------


def test_a_known_key_does_not_excuse_an_empty_body_or_a_missing_type(streams: Streams) -> None:
    path = streams.new()
    is_first(streams.keyed(path, "k"))
    refused(streams.keyed(path, "k", b""), "EMPTY_BODY")
    refused(streams.keyed(path, "k", content_type=None), "MISSING_CONTENT_TYPE")
    refused(streams.keyed(path, "k", b"1" * (BODY_LIMIT + 1)), "PAYLOAD_TOO_LARGE")


def test_a_known_key_speaks_before_closed_type_producer_sequence_and_json(streams: Streams) -> None:
    path = streams.new()
    first = is_first(streams.keyed(path, "k", b"1", {"Stream-Seq": "5"} | CLOSED))
    everything_wrong = {"Stream-Seq": "1"} | CLOSED
    is_replay(streams.keyed(path, "k", b"1", everything_wrong, content_type=TEXT), first)
    refused(streams.keyed(path, "k", b"{", everything_wrong, content_type=TEXT), "IDEMPOTENCY_MISMATCH")
    refused(streams.keyed(path, "k", b"{", producer("p", 0, 9), content_type=TEXT), "IDEMPOTENCY_MISMATCH")
    refused(streams.keyed(path, "new", b"1", everything_wrong), "STREAM_CLOSED")


# -- Two at once ------------------------------------------------------------------------------------------------------

CROWD = 12


@pytest.mark.each_store
@pytest.mark.parametrize("name", ["append", "append and close", "close only", "producer", "Stream-Seq", "batch"])
def test_many_at_once_with_one_key_are_one(streams: Streams, name: str) -> None:
    body, headers, _, _ = REPEATED[name]
    for _ in range(4):
        path = streams.new()
        answers = at_once([partial(streams.keyed, path, "k", body, headers)] * CROWD)
        firsts = [answer for answer in answers if REPLAYED not in answer.headers]
        assert len(firsts) == 1
        assert {kept(answer) for answer in answers} == {kept(firsts[0])}
        assert len(streams.messages(path)) == {b"": 0, b"1": 1}.get(body, 3)


@pytest.mark.each_store
def test_many_at_once_with_one_key_and_two_bodies(streams: Streams) -> None:
    for _ in range(4):
        path = streams.new()
        bodies = [b"1", b"2"] * (CROWD // 2)
        answers = at_once([partial(streams.keyed, path, "k", body) for body in bodies])
        [winner] = streams.messages(path)
        for body, answer in zip(bodies, answers, strict=True):
            if body == b"%d" % winner:
                assert answer.status_code == 204
            else:
                refused(answer, "IDEMPOTENCY_MISMATCH")
        assert sum(answer.status_code == 204 and REPLAYED not in answer.headers for answer in answers) == 1


def test_pipelined_repeats_are_one(streams: Streams) -> None:
    path = streams.new()
    append = request("POST", path, b"Content-Type: application/json", b"Idempotency-Key: k", body=b"1")
    with Wire(streams.server) as wire:
        wire.send(append * 5)
        first, *others = [wire.answer("POST") for _ in range(5)]
    is_first(first)
    for other in others:
        is_replay(other, first)
    assert streams.messages(path) == [1]


@pytest.mark.parametrize("drop", ["close", "reset"])
def test_a_connection_that_drops_before_the_answer_costs_nothing(streams: Streams, drop: str) -> None:
    """The seed's picture: the client cannot know whether the append happened, and sends it again."""
    path, count = streams.new(), 25
    for number in range(count):
        body = b"%d" % number
        key = b"Idempotency-Key: drop-%d" % number
        with Wire(streams.server) as wire:
            wire.send(request("POST", path, b"Content-Type: application/json", key, body=body))
            if drop == "reset":
                wire.reset()
        again = streams.keyed(path, f"drop-{number}", body)
        assert again.status_code == 204
        is_replay(streams.keyed(path, f"drop-{number}", body), again)
    assert streams.messages(path) == list(range(count))


# -- Durability -------------------------------------------------------------------------------------------------------


class Crashed(NamedTuple):
    """A server that was killed and started again, and what it had answered before."""

    streams: Streams
    paths: Mapping[str, str]
    answers: Mapping[str, httpx.Response]


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory, store_kind: str) -> Iterator[Crashed]:
    with serving(tmp_path_factory.mktemp("crash") / "data") as streams:
        paths = {name: streams.new() for name in REPEATED}
        answers = {}
        for name, (body, headers, _, between) in REPEATED.items():
            answers[name] = is_first(streams.keyed(paths[name], "k", body, headers))
            between(streams, paths[name])
        streams.server.kill()
        streams.server.start()
        yield Crashed(streams, paths, answers)


@pytest.mark.each_store
@pytest.mark.parametrize("name", REPEATED)
def test_a_record_survives_a_crash(crashed: Crashed, name: str) -> None:
    streams, path = crashed.streams, crashed.paths[name]
    body, headers, _, _ = REPEATED[name]
    content = streams.content(path)
    is_replay(streams.keyed(path, "k", body, headers), crashed.answers[name])
    refused(streams.keyed(path, "k", b'"other"', headers), "IDEMPOTENCY_MISMATCH")
    assert streams.content(path) == content


@pytest.mark.each_store
def test_a_message_survives_a_crash_once(crashed: Crashed) -> None:
    assert crashed.streams.messages(crashed.paths["append"]) == [1]


@pytest.mark.each_store
def test_every_keyed_append_lands_once_though_the_server_dies_amid_them(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    numbers, answers, is_dead = itertools.count(), dict[int, httpx.Response | None](), threading.Event()
    with serving(tmp_path_factory.mktemp("amid") / "data") as streams:
        path = streams.new()

        def send(number: int) -> httpx.Response | None:
            try:
                return streams.keyed(path, f"key-{number}", b"%d" % number)
            except httpx.TransportError:
                return None

        def send_until_nobody_answers() -> None:
            answer: httpx.Response | None = None
            # Whenever the crash comes, some are on their way.
            while answer is not None or not is_dead.is_set():
                number = next(numbers)
                answer = answers[number] = send(number)
                if answer is None:
                    time.sleep(0.02)

        with ThreadPoolExecutor(8) as pool:
            senders = [pool.submit(send_until_nobody_answers) for _ in range(8)]
            try:
                eventually(lambda: len(answers) >= 75, "some are done")
            finally:
                streams.server.kill()
                is_dead.set()
            for sender in senders:
                sender.result()
        assert None in answers.values()
        streams.server.start()
        for number, first in answers.items():
            again = streams.keyed(path, f"key-{number}", b"%d" % number)
            if first is None:
                assert again.status_code == 204
            else:
                is_replay(again, is_first(first))
        assert sorted(streams.messages(path)) == sorted(answers)


# -- Lifetime ---------------------------------------------------------------------------------------------------------


def test_a_stream_deleted_and_made_again_knows_no_keys(streams: Streams) -> None:
    path = streams.new()
    is_first(streams.keyed(path, "k"))
    assert streams.delete(path).status_code == 204
    refused(streams.keyed(path, "k"), "STREAM_NOT_FOUND")
    assert streams.put(path).status_code == 201
    is_first(streams.keyed(path, "k"))
    assert streams.messages(path) == [1]
    assert streams.delete(path).status_code == 204
    assert streams.put(path).status_code == 201
    is_first(streams.keyed(path, "k", b"2"))


def test_a_stream_expired_and_made_again_knows_no_keys(streams: Streams) -> None:
    in_time(partial(use_again, streams), 1)


def use_again(streams: Streams, seconds: float) -> None:
    made = time.monotonic()
    path = streams.new(headers=window(round(seconds)))
    with unless_late(lambda: made, seconds):
        is_first(streams.keyed(path, "k"))
    eventually(lambda: streams.head(path).status_code == 404, "the stream expires")
    refused(streams.keyed(path, "k"), "STREAM_NOT_FOUND")
    assert streams.put(path).status_code == 201
    assert streams.messages(path) == []
    is_first(streams.keyed(path, "k", b"2"))
    assert streams.messages(path) == [2]


def test_a_replay_restarts_a_ttl_window(streams: Streams) -> None:
    def keyed(path: str) -> httpx.Response:
        return streams.keyed(path, "k", b"1")

    def closing(path: str) -> httpx.Response:
        return streams.keyed(path, "k", b"", CLOSED)

    touches = {
        "replay": Touch(keyed, keyed),
        "replayed close": Touch(closing, closing),
        "none": Touch(lambda path: None, keyed),
    }
    assert alive_after(streams, touches) == {"replay": True, "replayed close": True, "none": False}


@pytest.mark.each_store
def test_a_replay_wakes_no_long_poll(streams: Streams) -> None:
    path = streams.new()
    is_first(streams.keyed(path, "k"))
    tail = streams.tail(path)
    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(lambda: streams.get(path, live="long-poll", offset=tail))
        time.sleep(0.2)
        for _ in range(3):
            assert streams.keyed(path, "k").headers[REPLAYED] == "true"
        time.sleep(0.2)
        assert not reader.done()
        streams.post(path, b"2")
        answer = reader.result()
    assert (answer.status_code, answer.json()) == (200, [2])


def test_a_replay_wakes_no_sse_reader(streams: Streams) -> None:
    path = streams.new()
    is_first(streams.keyed(path, "k"))
    with streams.live(path, streams.tail(path)) as live:
        live.until_up_to_date()
        for _ in range(3):
            assert streams.keyed(path, "k").headers[REPLAYED] == "true"
        streams.post(path, b"2")
        # The next frame is the new message: the replays caused none.
        assert live.event().text == "[2]"


# -- Other methods ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["k", "k" * 300, ""], ids=["valid", "too long", "empty"])
def test_other_methods_ignore_the_header(streams: Streams, key: str) -> None:
    header = {KEY: key}
    path = streams.path()
    for status in (201, 200, 200):
        answer = streams.put(path, JSON, b"1", header)
        assert (answer.status_code, REPLAYED in answer.headers) == (status, False)
    for _ in range(2):
        for method in ("GET", "HEAD", "OPTIONS"):
            answer = streams.client.request(method, path, headers=header)
            assert (answer.status_code in (200, 204), REPLAYED in answer.headers) == (True, False)
    is_first(streams.keyed(path, "k", b"2"))  # the PUTs and GETs have not used it up
    for status in (204, 404):
        answer = streams.client.delete(path, headers=header)
        assert (answer.status_code, REPLAYED in answer.headers) == (status, False)


def test_a_replayed_close_only_post_is_204_and_closed(streams: Streams) -> None:
    path = streams.new(body=b"1")
    first = is_first(streams.keyed(path, "k", b"", CLOSED, content_type=None))
    again = streams.keyed(path, "k", b"", CLOSED, content_type=None)
    is_replay(again, first)
    assert (again.status_code, again.headers["Stream-Closed"], offset_of(again)) == (204, "true", streams.tail(path))


# -- Both a key and producer headers ----------------------------------------------------------------------------------


def test_key_and_tuple_known_the_answer_is_replayed(streams: Streams) -> None:
    path = streams.new()
    first = is_first(streams.keyed(path, "k", b"1", TUPLE))
    assert (first.status_code, first.headers["Producer-Epoch"], first.headers["Producer-Seq"]) == (200, "0", "0")
    assert streams.post(path, b"2", producer("p", 0, 1)).status_code == 200
    assert streams.post(path, b"3", producer("p", 1, 0)).status_code == 200
    is_replay(streams.keyed(path, "k", b"1", TUPLE), first)
    assert streams.messages(path) == [1, 2, 3]
    assert streams.post(path, b"4", producer("p", 1, 1)).status_code == 200


OTHER_TUPLES: dict[str, tuple[Mapping[str, str], Mapping[str, str]]] = {
    "new epoch": (TUPLE, producer("p", 1, 0)),
    "next sequence": (TUPLE, producer("p", 0, 1)),
    "gap": (TUPLE, producer("p", 0, 7)),
    "another producer": (TUPLE, producer("q", 0, 0)),
    "another case of the id": (TUPLE, producer("P", 0, 0)),
    "dropped": (TUPLE, {}),
    "added": ({}, TUPLE),
    "closing": (TUPLE, TUPLE | CLOSED),
}


@pytest.mark.parametrize("name", OTHER_TUPLES)
def test_key_known_another_tuple_is_a_mismatch_and_moves_nothing(streams: Streams, name: str) -> None:
    before, after = OTHER_TUPLES[name]
    path = streams.new()
    first = is_first(streams.keyed(path, "k", b"1", before))
    refused(streams.keyed(path, "k", b"1", after), "IDEMPOTENCY_MISMATCH")
    is_replay(streams.keyed(path, "k", b"1", before), first)
    # Neither producer has moved: the known one goes on with 1, a new one with 0.
    next_seq = 1 if before else 0
    assert streams.post(path, b"2", producer("p", 0, next_seq)).status_code == 200
    assert streams.post(path, b"3", producer("q", 0, 0)).status_code == 200
    assert streams.messages(path) == [1, 2, 3]


def test_key_unknown_accepted_writes_data_state_and_record(streams: Streams) -> None:
    path = streams.new()
    first = is_first(streams.keyed(path, "k", b"1", TUPLE))
    assert first.status_code == 200
    duplicate = is_first(streams.post(path, b"1", TUPLE))
    assert duplicate.status_code == 204
    is_replay(streams.keyed(path, "k", b"1", TUPLE), first)
    assert streams.messages(path) == [1]


def test_key_unknown_duplicate_is_204_and_makes_no_record(streams: Streams) -> None:
    path = streams.new()
    assert streams.post(path, b"1", TUPLE).status_code == 200
    for body in (b"1", b"1", b"other body, not looked at"):
        answer = is_first(streams.keyed(path, "k", body, TUPLE))
        assert answer.status_code == 204
        assert (answer.headers["Producer-Epoch"], answer.headers["Producer-Seq"]) == ("0", "0")
        assert offset_of(answer) == streams.tail(path)
    first = is_first(streams.keyed(path, "k", b"2", producer("p", 0, 1)))
    assert first.status_code == 200
    is_replay(streams.keyed(path, "k", b"2", producer("p", 0, 1)), first)
    assert streams.messages(path) == [1, 2]


def test_key_unknown_duplicate_of_the_closing_tuple_makes_no_record(streams: Streams) -> None:
    path = streams.new()
    assert streams.post(path, b"1", TUPLE | CLOSED).status_code == 200
    for _ in range(2):
        answer = is_first(streams.keyed(path, "k", b"1", TUPLE | CLOSED))
        assert (answer.status_code, answer.headers["Stream-Closed"]) == (204, "true")


REFUSED_TUPLES = {
    "stale": (producer("p", 4, 0), "PRODUCER_FENCED"),
    "gap": (producer("p", 5, 9), "PRODUCER_GAP"),
    "epoch begun in the middle": (producer("p", 6, 1), "INVALID_PRODUCER"),
    "malformed": (producer("p", 5, "one"), "INVALID_PRODUCER"),
}


@pytest.mark.parametrize("name", REFUSED_TUPLES)
def test_key_unknown_refused_tuple_makes_no_record(streams: Streams, name: str) -> None:
    headers, code = REFUSED_TUPLES[name]
    path = busy_stream(streams)
    for _ in range(2):
        refused(streams.keyed(path, "k", b"1", headers), code)
    first = is_first(streams.keyed(path, "k", b"2", producer("p", 5, 1)))
    assert (first.status_code, first.headers["Producer-Seq"]) == (200, "1")


@pytest.mark.each_store
def test_one_producer_with_keys_from_many_threads(streams: Streams) -> None:
    path = streams.new()
    answers = at_once([partial(streams.keyed, path, "k", b"1", TUPLE), partial(streams.post, path, b"1", TUPLE)] * 6)
    assert sum(answer.status_code == 200 and REPLAYED not in answer.headers for answer in answers) == 1
    assert {offset_of(answer) for answer in answers} == {streams.tail(path)}
    assert streams.messages(path) == [1]


# -- HEAD: what is stored of a key, without sending the append again ---------------------------------------------------


def test_head_with_a_key_tells_the_offset_of_its_append_and_stores_nothing(streams: Streams) -> None:
    path = streams.new()
    first = streams.keyed(path, "k-1", b"1")
    streams.keyed(path, "k-2", b"2")
    known = streams.client.head(path, headers={"Lookup-Key": "k-1"})
    assert (known.status_code, known.headers[REPLAYED]) == (200, "true")
    assert known.headers["Idempotency-Offset"] == first.headers["Stream-Next-Offset"]
    assert offset_of(known) > known.headers["Idempotency-Offset"]
    unknown = streams.client.head(path, headers={"Lookup-Key": "k-3"})
    assert unknown.status_code == 200
    assert not {REPLAYED.lower(), "idempotency-offset"} & set(unknown.headers)
    is_first(streams.keyed(path, "k-3", b"3"))


def test_head_with_a_producer_tells_its_highest_number(streams: Streams) -> None:
    path = streams.new()
    for seq in range(2):
        streams.post(path, b"1", headers=producer("w", 3, seq))
    known = streams.client.head(path, headers={"Lookup-Producer": "w"})
    assert (known.headers["Producer-Epoch"], known.headers["Producer-Seq"]) == ("3", "1")
    assert "Producer-Epoch" not in streams.client.head(path, headers={"Lookup-Producer": "v"}).headers


def test_head_with_a_key_of_a_deleted_stream_tells_nothing(streams: Streams) -> None:
    path = streams.new()
    streams.keyed(path, "k-1", b"1")
    streams.client.delete(path)
    assert streams.client.head(path, headers={"Lookup-Key": "k-1"}).status_code == 404
    streams.put(path, JSON)
    assert REPLAYED not in streams.client.head(path, headers={"Lookup-Key": "k-1"}).headers


@pytest.mark.parametrize(
    "headers", [{"Lookup-Key": ""}, {"Lookup-Key": "a" * 257}, {"Lookup-Producer": ""}, {"Lookup-Producer": "p" * 257}]
)
def test_head_with_an_invalid_key_or_producer_is_refused(streams: Streams, headers: Mapping[str, str]) -> None:
    assert streams.client.head(streams.new(), headers=dict(headers)).status_code == 400
