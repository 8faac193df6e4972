"""Idempotent producers: the table of epochs and sequences row by row, closing tuples, and many threads at once."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import httpx
import pytest

from tests.harness.together import at_once
from tests.streams.wire import CLOSED, START, TEXT, Streams, Wire, offset_of, producer, raw, refused, request, serving

LARGEST = 2**53 - 1


def accepted(answer: httpx.Response, epoch: int, seq: int) -> str:
    """A producer's append that was written; the tail after it."""
    assert answer.status_code == 200, answer.text
    assert (answer.headers["Producer-Epoch"], answer.headers["Producer-Seq"]) == (str(epoch), str(seq))
    return offset_of(answer)


def duplicate(answer: httpx.Response, epoch: int, highest: int) -> str:
    """A producer's append that had been written before; it names the highest sequence, not the one sent."""
    assert answer.status_code == 204, answer.text
    assert (answer.headers["Producer-Epoch"], answer.headers["Producer-Seq"]) == (str(epoch), str(highest))
    return offset_of(answer)


def known(streams: Streams) -> str:
    """A stream that knows producer `p` at epoch 5 with highest sequence 2."""
    path = streams.new()
    for seq in range(3):
        accepted(streams.post(path, b"%d" % seq, producer("p", 5, seq)), 5, seq)
    return path


# -- The table --------------------------------------------------------------------------------------------------------

COMPLETE = producer("p", 5, 3)
NOT_A_TUPLE: dict[str, Mapping[str, str]] = {
    **{
        " and ".join(names) + " only": {name: COMPLETE[name] for name in names}
        for count in (1, 2)
        for names in itertools.combinations(COMPLETE, count)
    },
    "empty id": producer("", 5, 3),
    "empty epoch": producer("p", "", 3),
    "empty seq": producer("p", 5, ""),
    **{
        f"{field} {value}": COMPLETE | {f"Producer-{field}": value}
        for field in ("Epoch", "Seq")
        for value in ("-1", "+3", "3.0", "3e0", "0x3", "3 3", "3,3", "3_0", "abc", "NaN", "Infinity", '"3"', "None")
    },
    **{
        f"{field} {name}": COMPLETE | {f"Producer-{field}": str(value)}
        for field in ("Epoch", "Seq")
        for name, value in {"2^53": 2**53, "2^63": 2**63, "2^64": 2**64, "1000 digits": 10**999}.items()
    },
}


@pytest.mark.parametrize("name", NOT_A_TUPLE)
def test_headers_that_are_no_tuple_are_refused(streams: Streams, name: str) -> None:
    path = known(streams)
    tail = streams.tail(path)
    refused(streams.post(path, b"3", NOT_A_TUPLE[name]), "INVALID_PRODUCER")
    refused(streams.close(path, NOT_A_TUPLE[name]), "INVALID_PRODUCER")
    after = streams.head(path)
    assert (offset_of(after), after.headers.get("Stream-Closed")) == (tail, None)
    accepted(streams.post(path, b"3", producer("p", 5, 3)), 5, 3)


@pytest.mark.parametrize("field", [b"Producer-Epoch", b"Producer-Seq"])
@pytest.mark.parametrize(
    "digits", ["\u0663", "\uff13", "\u00b3", "3\u00a0"], ids=["arabic", "fullwidth", "superscript", "no-break space"]
)
def test_only_ascii_digits_are_digits(streams: Streams, field: bytes, digits: str) -> None:
    path = streams.new()
    headers = {b"Producer-Id": b"p", b"Producer-Epoch": b"0", b"Producer-Seq": b"0"} | {field: digits.encode()}
    lines = [name + b": " + value for name, value in headers.items()]
    answer = raw(streams.server, "POST", path, b"Content-Type: application/json", *lines, body=b"1")
    refused(answer, "INVALID_PRODUCER")
    assert streams.tail(path) == START


@pytest.mark.parametrize("epoch", [0, 1, 7, LARGEST])
def test_an_unknown_producer_begins_with_sequence_0_at_any_epoch(streams: Streams, epoch: int) -> None:
    path = streams.new()
    tail = accepted(streams.post(path, b"1", producer("p", epoch, 0)), epoch, 0)
    assert tail == streams.tail(path) > START
    accepted(streams.post(path, b"2", producer("p", epoch, 1)), epoch, 1)


@pytest.mark.parametrize("seq", [1, 2, 1000, LARGEST])
def test_an_unknown_producer_that_begins_later_has_a_gap(streams: Streams, seq: int) -> None:
    path = streams.new()
    answer = streams.post(path, b"1", producer("p", 0, seq))
    refused(answer, "PRODUCER_GAP")
    assert answer.headers["Producer-Expected-Seq"] == "0"
    assert answer.headers["Producer-Received-Seq"] == str(seq)
    assert streams.tail(path) == START
    accepted(streams.post(path, b"1", producer("p", 0, 0)), 0, 0)


@pytest.mark.parametrize(("epoch", "seq"), [(4, 0), (4, 3), (0, 0), (0, 99)])
def test_an_older_epoch_is_fenced(streams: Streams, epoch: int, seq: int) -> None:
    path = known(streams)
    answer = streams.post(path, b"9", producer("p", epoch, seq))
    refused(answer, "PRODUCER_FENCED")
    assert answer.headers["Producer-Epoch"] == "5"
    assert streams.messages(path) == [0, 1, 2]
    accepted(streams.post(path, b"3", producer("p", 5, 3)), 5, 3)


@pytest.mark.parametrize("epoch", [6, 99, LARGEST])
def test_a_newer_epoch_begins_with_sequence_0_and_fences_the_older(streams: Streams, epoch: int) -> None:
    path = known(streams)
    accepted(streams.post(path, b"3", producer("p", epoch, 0)), epoch, 0)
    refused(streams.post(path, b"9", producer("p", 5, 3)), "PRODUCER_FENCED")
    accepted(streams.post(path, b"4", producer("p", epoch, 1)), epoch, 1)
    assert streams.messages(path) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("seq", [1, 3, LARGEST])
def test_a_newer_epoch_begun_in_the_middle_is_refused(streams: Streams, seq: int) -> None:
    path = known(streams)
    refused(streams.post(path, b"9", producer("p", 6, seq)), "INVALID_PRODUCER")
    accepted(streams.post(path, b"3", producer("p", 5, 3)), 5, 3)  # the epoch has not moved


def test_the_next_sequence_is_accepted(streams: Streams) -> None:
    path = known(streams)
    tails = [streams.tail(path)]
    tails += [accepted(streams.post(path, b"[1,2]", producer("p", 5, seq)), 5, seq) for seq in range(3, 12)]
    assert tails == sorted(set(tails))


class Duplicate(NamedTuple):
    """A request whose sequence is known, with things that are not looked at any more."""

    seq: int
    body: bytes = b"9"
    headers: Mapping[str, str] = {}


DUPLICATES = {
    "the highest": Duplicate(2),
    "an older one": Duplicate(1),
    "the first": Duplicate(0),
    "invalid JSON": Duplicate(2, b"{"),
    "an empty array": Duplicate(2, b"[]"),
    "invalid UTF-8": Duplicate(2, b"\xff"),
    "a stale Stream-Seq": Duplicate(2, b"9", {"Stream-Seq": "5"}),
    "a new Stream-Seq": Duplicate(2, b"9", {"Stream-Seq": "9"}),
    "an append that would close": Duplicate(2, b"9", CLOSED),
    "a close": Duplicate(2, b"", CLOSED),
}


@pytest.mark.parametrize("name", DUPLICATES)
def test_a_known_sequence_is_204_and_writes_nothing(streams: Streams, name: str) -> None:
    seq, body, headers = DUPLICATES[name]
    path = known(streams)
    assert streams.post(path, b"3", {"Stream-Seq": "5"}).status_code == 204
    for _ in range(2):
        tail = duplicate(streams.post(path, body, {**producer("p", 5, seq), **headers}), 5, 2)
        assert tail == streams.tail(path)
    assert streams.messages(path) == [0, 1, 2, 3]
    # It neither closed the stream nor moved the Stream-Seq.
    assert streams.post(path, b"4", {"Stream-Seq": "6"}).status_code == 204


@pytest.mark.parametrize("seq", [4, 5, 100, LARGEST])
def test_a_gap_names_what_was_expected(streams: Streams, seq: int) -> None:
    path = known(streams)
    for _ in range(2):
        answer = streams.post(path, b"9", producer("p", 5, seq))
        refused(answer, "PRODUCER_GAP")
        assert answer.headers["Producer-Expected-Seq"] == "3"
        assert answer.headers["Producer-Received-Seq"] == str(seq)
    accepted(streams.post(path, b"3", producer("p", 5, 3)), 5, 3)
    assert streams.messages(path) == [0, 1, 2, 3]


# -- State ------------------------------------------------------------------------------------------------------------


def test_state_is_kept_for_each_producer_and_stream(streams: Streams) -> None:
    one, other = known(streams), streams.new()
    for path, name in itertools.product((one, other), ("q", "P", "p q", "a/b", "p,q", '"p"')):
        accepted(streams.post(path, b"9", producer(name, 0, 0)), 0, 0)
    accepted(streams.post(other, b"9", producer("p", 0, 0)), 0, 0)
    accepted(streams.post(one, b"3", producer("p", 5, 3)), 5, 3)


REFUSALS = {
    "invalid JSON": ("INVALID_JSON", b"{", {}),
    "stale Stream-Seq": ("SEQUENCE_CONFLICT", b"3", {"Stream-Seq": "5"}),
    "another content type": ("CONTENT_TYPE_MISMATCH", b"3", {"Content-Type": TEXT}),
    "empty body": ("EMPTY_BODY", b"", {}),
    "invalid JSON with a close": ("INVALID_JSON", b"{", CLOSED),
}


@pytest.mark.parametrize("seq", [3, 0], ids=["next sequence", "new epoch"])
@pytest.mark.parametrize("name", REFUSALS)
def test_a_refused_append_uses_up_no_sequence(streams: Streams, name: str, seq: int) -> None:
    code, body, headers = REFUSALS[name]
    epoch = 6 if seq == 0 else 5
    path = known(streams)
    assert streams.post(path, b"3", {"Stream-Seq": "5"}).status_code == 204
    for _ in range(2):
        refused(streams.post(path, body, producer("p", epoch, seq) | headers), code)
    accepted(streams.post(path, b"4", producer("p", 5, 3)), 5, 3)  # not even the epoch has moved
    assert streams.messages(path) == [0, 1, 2, 3, 4]


def test_a_stream_made_again_knows_no_producer(streams: Streams) -> None:
    path = known(streams)
    assert streams.delete(path).status_code == 204
    assert streams.put(path).status_code == 201
    refused(streams.post(path, b"9", producer("p", 5, 3)), "PRODUCER_GAP")
    accepted(streams.post(path, b"1", producer("p", 0, 0)), 0, 0)


@pytest.mark.each_store
def test_state_survives_a_crash(tmp_path_factory: pytest.TempPathFactory) -> None:
    with serving(tmp_path_factory.mktemp("crash") / "data") as streams:
        path, closed = known(streams), known(streams)
        accepted(streams.post(closed, b"3", producer("p", 5, 3) | CLOSED), 5, 3)
        streams.server.kill()
        streams.server.start()
        duplicate(streams.post(path, b"2", producer("p", 5, 2)), 5, 2)
        refused(streams.post(path, b"9", producer("p", 4, 0)), "PRODUCER_FENCED")
        refused(streams.post(path, b"9", producer("p", 5, 4)), "PRODUCER_GAP")
        accepted(streams.post(path, b"3", producer("p", 5, 3)), 5, 3)
        again = streams.post(closed, b"3", producer("p", 5, 3) | CLOSED)
        duplicate(again, 5, 3)
        assert again.headers["Stream-Closed"] == "true"
        assert streams.messages(path) == streams.messages(closed) == [0, 1, 2, 3]


# -- Closing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("body", "status"), [(b"3", 200), (b"", 204)], ids=["append and close", "close only"])
def test_a_close_takes_part_in_sequencing(streams: Streams, body: bytes, status: int) -> None:
    path = known(streams)
    refused(streams.post(path, body, producer("p", 5, 4) | CLOSED), "PRODUCER_GAP")
    refused(streams.post(path, body, producer("p", 4, 3) | CLOSED), "PRODUCER_FENCED")
    refused(streams.post(path, body, producer("p", 6, 1) | CLOSED), "INVALID_PRODUCER")
    duplicate(streams.post(path, body, producer("p", 5, 2) | CLOSED), 5, 2)
    assert "Stream-Closed" not in streams.head(path).headers
    answer = streams.post(path, body, producer("p", 5, 3) | CLOSED)
    assert answer.status_code == status
    assert (answer.headers["Producer-Epoch"], answer.headers["Producer-Seq"]) == ("5", "3")
    assert answer.headers["Stream-Closed"] == "true"
    assert offset_of(answer) == streams.tail(path)
    assert streams.messages(path) == [0, 1, 2] + ([3] if body else [])


@pytest.mark.parametrize("closing", [b"3", b""], ids=["append and close", "close only"])
@pytest.mark.parametrize("again", [b"3", b"", b"other", b"{"], ids=["body", "no body", "other body", "invalid"])
def test_the_closing_tuple_again_is_204_whatever_its_body(streams: Streams, closing: bytes, again: bytes) -> None:
    path = known(streams)
    first = streams.post(path, closing, producer("p", 5, 3) | CLOSED)
    for _ in range(2):
        answer = streams.post(path, again, producer("p", 5, 3) | CLOSED)
        assert duplicate(answer, 5, 3) == offset_of(first)
        assert answer.headers["Stream-Closed"] == "true"
    assert streams.tail(path) == offset_of(first)


OTHERS = {
    "next sequence": producer("p", 5, 4),
    "gap": producer("p", 5, 9),
    "an older sequence": producer("p", 5, 2),
    "new epoch": producer("p", 6, 0),
    "another producer": producer("q", 0, 0),
    "another producer, the same numbers": producer("q", 5, 3),
}


@pytest.mark.parametrize("body", [b"9", b""], ids=["append and close", "close only"])
@pytest.mark.parametrize("name", OTHERS)
def test_any_other_tuple_finds_the_stream_closed(streams: Streams, name: str, body: bytes) -> None:
    path = known(streams)
    final = offset_of(streams.post(path, b"3", producer("p", 5, 3) | CLOSED))
    answers = [streams.post(path, body, OTHERS[name] | CLOSED), streams.post(path, b"9", OTHERS[name])]
    for answer in answers:
        refused(answer, "STREAM_CLOSED")
        assert answer.headers["Stream-Closed"] == "true"
        assert offset_of(answer) == final == streams.tail(path)


def test_a_stale_epoch_finds_the_stream_closed_or_is_fenced(streams: Streams) -> None:
    path = known(streams)
    streams.post(path, b"3", producer("p", 5, 3) | CLOSED)
    answer = streams.post(path, b"9", producer("p", 4, 3))
    refused(answer, "STREAM_CLOSED" if answer.status_code == 409 else "PRODUCER_FENCED")


def test_a_close_without_tuple_remembers_none(streams: Streams) -> None:
    path = known(streams)
    assert streams.close(path).status_code == 204
    refused(streams.close(path, producer("p", 5, 3)), "STREAM_CLOSED")
    refused(streams.post(path, b"9", producer("p", 5, 2)), "STREAM_CLOSED")
    assert streams.close(path).status_code == 204


def test_a_plain_close_after_a_producers_close_is_204(streams: Streams) -> None:
    path = known(streams)
    closed = streams.close(path, producer("p", 5, 3))
    assert closed.status_code == 204
    again = streams.close(path)
    assert (again.status_code, again.headers["Stream-Closed"]) == (204, "true")
    assert offset_of(again) == offset_of(closed)


# -- Many at once -----------------------------------------------------------------------------------------------------


@pytest.mark.each_store
def test_one_tuple_from_many_threads_is_written_once(streams: Streams) -> None:
    path = streams.new()
    for seq in range(8):
        answers = at_once([partial(streams.post, path, b"%d" % seq, producer("p", 0, seq))] * 8)
        assert sorted(answer.status_code for answer in answers) == [200] + [204] * 7
        assert {answer.headers["Producer-Seq"] for answer in answers} == {str(seq)}
    assert streams.messages(path) == list(range(8))


@pytest.mark.each_store
def test_one_closing_tuple_from_many_threads_closes_once(streams: Streams) -> None:
    path = streams.new()
    answers = at_once([partial(streams.post, path, b"1", producer("p", 0, 0) | CLOSED)] * 8)
    assert sorted(answer.status_code for answer in answers) == [200] + [204] * 7
    assert {answer.headers["Stream-Closed"] for answer in answers} == {"true"}
    assert streams.messages(path) == [1]


@pytest.mark.each_store
def test_sequences_sent_out_of_order_by_several_threads_land_in_order(streams: Streams) -> None:
    path, count = streams.new(), 60

    def insist(seq: int) -> int:
        """Send until it is in, as a pipelining client does."""
        while True:
            answer = streams.post(path, b"%d" % seq, producer("p", 0, seq))
            if answer.status_code in (200, 204):
                return answer.status_code
            refused(answer, "PRODUCER_GAP")
            assert int(answer.headers["Producer-Expected-Seq"]) < seq
            assert answer.headers["Producer-Received-Seq"] == str(seq)

    sequences = list(range(count))
    for start in range(0, count, 6):
        block = sequences[start : start + 6]
        random.Random(start).shuffle(block)
        sequences[start : start + 6] = block
    with ThreadPoolExecutor(6) as pool:
        assert set(pool.map(insist, sequences)) == {200}
    assert streams.messages(path) == list(range(count))


def test_sequences_pipelined_on_one_connection_land_in_order(streams: Streams) -> None:
    path, count = streams.new(), 50
    requests = []
    for seq in [*range(count), *range(count)]:
        lines = [f"{name}: {value}".encode() for name, value in producer("p", 0, seq).items()]
        requests.append(request("POST", path, b"Content-Type: application/json", *lines, body=b"%d" % seq))
    with Wire(streams.server) as wire:
        wire.send(b"".join(requests))
        answers = [wire.answer("POST") for _ in requests]
    for seq, answer in enumerate(answers[:count]):
        accepted(answer, 0, seq)
    for answer in answers[count:]:
        duplicate(answer, 0, count - 1)
    assert streams.messages(path) == list(range(count))


@pytest.mark.each_store
def test_several_producers_at_once_keep_their_own_order(streams: Streams) -> None:
    path, count = streams.new(), 20

    def produce(name: str) -> None:
        for seq in range(count):
            accepted(streams.post(path, b'["%s%d"]' % (name.encode(), seq), producer(name, 0, seq)), 0, seq)

    at_once([partial(produce, name) for name in "abcdef"])
    messages = streams.messages(path)
    for name in "abcdef":
        assert [message for message in messages if message[0] == name] == [f"{name}{seq}" for seq in range(count)]


@pytest.mark.each_store
def test_a_race_of_epochs_leaves_one_writer(streams: Streams) -> None:
    path = streams.new()
    answers = at_once([partial(streams.post, path, b"%d" % epoch, producer("p", epoch, 0)) for epoch in range(10)])
    written = [epoch for epoch, answer in enumerate(answers) if answer.status_code == 200]
    for answer in answers:
        if answer.status_code != 200:
            refused(answer, "PRODUCER_FENCED")
    assert streams.messages(path) == written == sorted(written)
    assert written[-1] == 9
