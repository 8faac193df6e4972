"""What a writer may ask for before its content is taken: no encoding but none, and a tail that it names."""

from __future__ import annotations

import gzip

import pytest

from tests.harness.together import at_once
from tests.streams.wire import CLOSED, JSON, TEXT, Streams, offset_of, producer, refused


def etag_of(streams: Streams, path: str, offset: str = "-1") -> str:
    """The tag of a read that reaches the tail."""
    read = streams.get(path, offset=offset)
    assert read.headers["Stream-Up-To-Date"] == "true"
    etag: str = read.headers["ETag"]
    return etag


# -- Content-Encoding -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "br", "identity, gzip", "x"])
@pytest.mark.parametrize("kind", [JSON, TEXT])
def test_c6_encoded_content_is_refused_and_not_stored(streams: Streams, kind: str, encoding: str) -> None:
    path, body = streams.new(kind), gzip.compress(b"[1]")
    answer = streams.post(path, body, {"Content-Encoding": encoding}, content_type=kind)
    refused(answer, "UNSUPPORTED_ENCODING")
    assert answer.headers["Accept-Encoding"] == "identity"
    assert streams.content(path) == (b"[]" if kind == JSON else b"")
    nowhere = streams.path()
    refused(streams.put(nowhere, kind, body, {"Content-Encoding": encoding}), "UNSUPPORTED_ENCODING")
    assert streams.head(nowhere).status_code == 404


@pytest.mark.parametrize("encoding", ["identity", "Identity", "identity, identity"])
def test_c6_content_that_is_named_as_not_encoded_is_taken(streams: Streams, encoding: str) -> None:
    path = streams.path()
    assert streams.put(path, TEXT, b"a", {"Content-Encoding": encoding}).status_code == 201
    assert streams.post(path, b"b", {"Content-Encoding": encoding}, content_type=TEXT).status_code == 204
    assert streams.content(path) == b"ab"


# -- If-Match ---------------------------------------------------------------------------------------------------------


def test_c6_an_append_that_names_the_tail_is_taken_once(streams: Streams) -> None:
    path = streams.new(JSON, b"[1]")
    seen = {"If-Match": etag_of(streams, path)}
    assert streams.post(path, b"2", seen).status_code == 204
    answer = streams.post(path, b"3", seen)
    refused(answer, "PRECONDITION_FAILED")
    assert offset_of(answer) == streams.tail(path)
    assert streams.messages(path) == [1, 2]
    assert streams.post(path, b"3", {"If-Match": etag_of(streams, path)}).status_code == 204
    assert streams.messages(path) == [1, 2, 3]


def test_c6_every_read_that_reaches_the_tail_names_it(streams: Streams) -> None:
    path = streams.new(TEXT, b"abc")
    middle = streams.tail(path)
    streams.post(path, b"def", content_type=TEXT)
    for offset in ("-1", middle, streams.tail(path)):
        answer = streams.post(path, b"", CLOSED | {"If-Match": etag_of(streams, path, offset)}, content_type=None)
        assert answer.status_code == 204
        path = streams.new(TEXT, b"abc")
        streams.post(path, b"def", content_type=TEXT)


def test_c6_a_star_and_a_list_with_the_tail_match(streams: Streams) -> None:
    path = streams.new()
    assert streams.post(path, b"1", {"If-Match": "*"}).status_code == 204
    assert streams.post(path, b"2", {"If-Match": f'"other", {etag_of(streams, path)}'}).status_code == 204
    refused(streams.post(streams.path(), b"1", {"If-Match": "*"}), "STREAM_NOT_FOUND")


def test_c6_what_does_not_name_the_tail_is_refused(streams: Streams) -> None:
    path = streams.new(JSON, b"[1]")
    tail = etag_of(streams, path)
    other = etag_of(streams, streams.new(JSON, b"[1]"))
    wrong = ["", "x", '""', '"*"', tail.strip('"'), "W/" + tail, other, tail.replace('-1"', '-2"'), tail[:-1] + '-c"']
    for etag in wrong:
        refused(streams.post(path, b"2", {"If-Match": etag}), "PRECONDITION_FAILED")
    assert streams.messages(path) == [1]


def test_c6_a_replay_is_not_refused_for_the_tail_that_it_made_itself(streams: Streams) -> None:
    path = streams.new()
    seen = {"If-Match": etag_of(streams, path)}
    first, again = (streams.keyed(path, "once", b"1", seen) for _ in range(2))
    assert (first.status_code, again.status_code) == (204, 204)
    assert again.headers["Idempotency-Replayed"] == "true"
    refused(streams.keyed(path, "other", b"1", seen), "PRECONDITION_FAILED")
    assert streams.keyed(path, "other", b"2").status_code == 204  # a refusal uses no key up
    assert streams.messages(path) == [1, 2]


def test_c6_a_producers_duplicate_is_not_refused_either(streams: Streams) -> None:
    path = streams.new()
    seen = {"If-Match": etag_of(streams, path)}
    assert streams.post(path, b"1", producer("p", 0, 0) | seen).status_code == 200
    assert streams.post(path, b"1", producer("p", 0, 0) | seen).status_code == 204
    refused(streams.post(path, b"2", producer("p", 0, 1) | seen), "PRECONDITION_FAILED")
    assert streams.post(path, b"2", producer("p", 0, 1)).status_code == 200  # nor a sequence
    closing = producer("p", 0, 2) | CLOSED | {"If-Match": etag_of(streams, path)}
    assert [streams.post(path, b"3", closing).status_code for _ in range(2)] == [200, 204]
    assert streams.messages(path) == [1, 2, 3]


@pytest.mark.each_store
def test_c6_of_writers_that_have_read_the_same_tail_one_appends(streams: Streams) -> None:
    path = streams.new()
    for turn in range(5):
        seen = {"If-Match": etag_of(streams, path)}
        calls = [lambda seen=seen: streams.post(path, b"1", seen) for _ in range(8)]
        assert sorted(answer.status_code for answer in at_once(calls)) == [204] + 7 * [412]
        assert len(streams.messages(path)) == turn + 1
