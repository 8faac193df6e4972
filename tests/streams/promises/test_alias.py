"""`/streams/<name>` is the stream `/v1/stream/<name>`: the path that the specification of idempotent appends shows."""

from __future__ import annotations

import pytest

from tests.streams.wire import JSON, KEY, REPLAYED, ROOT, TEXT, Streams

ALIAS = "/streams/"


def alias_of(path: str) -> str:
    return ALIAS + path.removeprefix(ROOT)


def test_a_keyed_append_at_the_path_of_the_specification_is_one_append_at_both_paths(streams: Streams) -> None:
    created = streams.put(ALIAS + "my-stream", JSON)
    assert (created.status_code, created.headers["location"]) == (201, f"{streams.server.url}{ALIAS}my-stream")
    first = streams.keyed(ALIAS + "my-stream", "client-request-uuid-123", b'{"event": "user_clicked"}')
    assert (first.status_code, REPLAYED in first.headers) == (204, False)
    for path in (ROOT + "my-stream", ALIAS + "my-stream"):
        again = streams.keyed(path, "client-request-uuid-123", b'{"event": "user_clicked"}')
        assert (again.status_code, again.headers[REPLAYED]) == (204, "true")
        assert again.headers["stream-next-offset"] == first.headers["stream-next-offset"]
        assert streams.get(path).json() == [{"event": "user_clicked"}]


def test_both_paths_are_one_stream_for_every_method(streams: Streams) -> None:
    path = streams.new(TEXT, b"one")
    alias = alias_of(path)
    assert streams.put(alias, TEXT, b"one").status_code == 200
    assert streams.post(alias, b" two", content_type=TEXT).status_code == 204
    assert streams.head(alias).headers["stream-next-offset"] == streams.tail(path)
    assert streams.get(alias).content == streams.get(path).content == b"one two"
    assert streams.get(alias + "%2Fx").status_code == streams.get(path + "%2Fx").status_code == 404
    assert streams.delete(alias).status_code == 204
    for gone in (path, alias):
        assert streams.get(gone).status_code in (404, 410)
        assert streams.client.options(gone).status_code == 204
        refused = streams.client.request("PATCH", gone)
        assert (refused.status_code, refused.json()["code"]) == (405, "METHOD_NOT_ALLOWED")


def test_a_fork_takes_the_path_of_its_source_in_both_forms(streams: Streams) -> None:
    path = streams.new(TEXT, b"one")
    for source in (path, alias_of(path)):
        fork = streams.path()
        assert streams.put(fork, TEXT, headers={"Stream-Forked-From": source}).status_code == 201
        assert streams.get(fork).content == b"one"


@pytest.mark.parametrize("name", ["", "a/../b", "%", "%00", "%5F_ds", "x" * 1_025])
def test_a_name_that_is_refused_is_refused_the_same_way(streams: Streams, name: str) -> None:
    answers = [streams.client.build_request("GET", f"{streams.server.url}{root}") for root in (ROOT, ALIAS)]
    for request in answers:
        request.url = request.url.copy_with(raw_path=request.url.raw_path + name.encode())
    told, alias = [streams.client.send(request) for request in answers]
    assert (told.status_code, told.content) == (alias.status_code, alias.content)
    assert told.status_code in (400, 404)


def test_control_paths_have_no_alias(streams: Streams) -> None:
    assert streams.put(f"{ALIAS}__ds/subscriptions/x", JSON, b"{}").status_code == 404
    assert streams.get(f"{ALIAS}__ds/jwks.json").status_code == 404


def test_a_key_at_one_path_with_another_body_at_the_other_is_a_conflict(streams: Streams) -> None:
    path = streams.new()
    assert streams.post(path, b"1", {KEY: "k"}).status_code == 204
    assert streams.post(alias_of(path), b"2", {KEY: "k"}).json()["code"] == "IDEMPOTENCY_MISMATCH"
