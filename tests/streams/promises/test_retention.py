"""Retention: the front of a stream goes by age or by size, its readers are told, and forks keep what they have."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import httpx
import pytest

from tests.streams.wire import JSON, TEXT, Streams, offset_of, refused, serving

SETTLE_SECONDS = 60.0


@pytest.fixture(scope="module")
def streams(tmp_path_factory: pytest.TempPathFactory, store_kind: str) -> Iterator[Streams]:
    with serving(tmp_path_factory.mktemp("retention") / "data", SWEEP_INTERVAL_MS="50") as served:
        yield served


def until(is_so: Callable[[], bool]) -> None:
    """Wait until a chore has run."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, "the retention was not applied"
        time.sleep(0.1)


def fork(streams: Streams, source: str, headers: dict[str, str] | None = None) -> str:
    path = streams.path()
    answer = streams.put(path, None, headers={"Stream-Forked-From": source} | (headers or {}))
    assert answer.status_code == 201, answer.text
    return path


def earliest(streams: Streams, path: str) -> str:
    offset: str = streams.head(path).headers["Stream-Earliest-Offset"]
    return offset


def filled(streams: Streams, headers: dict[str, str], kind: str = TEXT) -> tuple[str, list[str]]:
    """A stream of ten appends of ten bytes, and the offsets before and behind each."""
    path = streams.new(kind, headers=headers)
    offsets = [offset_of(streams.head(path))]
    for number in range(10):
        body = b"%d" % number * 10 if kind == TEXT else b'"%d......"' % number
        offsets.append(offset_of(streams.post(path, body, content_type=kind)))
    return path, offsets


@pytest.mark.parametrize("kind", [TEXT, JSON])
def test_a_size_keeps_at_least_that_much_of_the_newest_content(streams: Streams, kind: str) -> None:
    path, offsets = filled(streams, {"Stream-Retention-Bytes": "25", "Stream-Retention-Age": "30"}, kind)
    assert streams.head(path).headers["Stream-Retention-Bytes"] == "25"
    assert streams.head(path).headers["Stream-Retention-Age"] == "30"
    until(lambda: earliest(streams, path) == offsets[7])
    wanted = b"777777777788888888889999999999" if kind == TEXT else b'["7......","8......","9......"]'
    assert streams.content(path) == wanted
    assert streams.get(path).headers["Stream-Next-Offset"] == offsets[10]


def test_a_read_behind_the_front_is_told_where_to_go_on_in_every_mode(streams: Streams) -> None:
    path, offsets = filled(streams, {"Stream-Retention-Bytes": "30", "Stream-Retention-Age": "40"})
    until(lambda: earliest(streams, path) == offsets[7])
    for mode in ({}, {"live": "long-poll"}, {"live": "sse"}):
        for offset in (offsets[0], offsets[6]):
            answer = streams.get(path, offset=offset, **mode)
            refused(answer, "STREAM_GONE")
            assert answer.headers["Stream-Next-Offset"] == offsets[7]
    assert streams.get(path, offset=offsets[7]).content == b"777777777788888888889999999999"
    assert streams.get(path, offset=offsets[8]).content == b"88888888889999999999"
    assert streams.get(path, offset="-1").content == b"777777777788888888889999999999"


def test_an_age_drops_what_is_older_and_nothing_younger(streams: Streams) -> None:
    path = streams.new(TEXT, b"old", headers={"Stream-Retention-Age": "3"})
    until(lambda: streams.content(path) == b"")
    appended_at = time.monotonic()
    streams.post(path, b"young", content_type=TEXT)
    while time.monotonic() < appended_at + 2:
        assert streams.content(path) == b"young" or time.monotonic() >= appended_at + 3
        time.sleep(0.2)
    until(lambda: streams.content(path) == b"")
    assert streams.post(path, b"next", content_type=TEXT).status_code == 204
    assert streams.content(path) == b"next"


def test_appends_keys_and_offsets_go_on_behind_a_dropped_front(streams: Streams) -> None:
    path = streams.new(TEXT, headers={"Stream-Retention-Bytes": "1", "Stream-Retention-Age": "10"})
    first = streams.post(path, b"first", {"Idempotency-Key": "k"}, content_type=TEXT)
    streams.post(path, b"second", content_type=TEXT)
    until(lambda: earliest(streams, path) == offset_of(first))
    again = streams.post(path, b"first", {"Idempotency-Key": "k"}, content_type=TEXT)
    assert again.headers["Idempotency-Replayed"] == "true"
    assert offset_of(again) == offset_of(first)
    assert streams.content(path) == b"second"


def test_a_fork_keeps_what_its_source_drops(streams: Streams) -> None:
    path, offsets = filled(streams, {"Stream-Retention-Age": "6"})
    whole = streams.content(path)
    kept = fork(streams, path, {"Stream-Retention-Age": "0"})
    until(lambda: earliest(streams, path) == offsets[10])
    assert streams.content(path) == b""
    assert streams.content(kept) == whole
    late = streams.put(streams.path(), None, headers={"Stream-Forked-From": path, "Stream-Fork-Offset": offsets[3]})
    refused(late, "STREAM_GONE")
    assert late.headers["Stream-Next-Offset"] == offsets[10]


def test_a_fork_has_the_retention_of_its_source_and_its_own_front(streams: Streams) -> None:
    path, offsets = filled(streams, {"Stream-Retention-Bytes": "50", "Stream-Retention-Age": "60"})
    copy = fork(streams, path, {"Stream-Fork-Offset": offsets[9]})
    assert streams.head(copy).headers["Stream-Retention-Bytes"] == "50"
    assert streams.head(copy).headers["Stream-Retention-Age"] == "60"
    until(lambda: earliest(streams, path) == offsets[5] and earliest(streams, copy) == offsets[4])
    assert streams.content(copy) == b"".join(b"%d" % number * 10 for number in range(4, 9))
    streams.post(copy, b"own", content_type=TEXT)
    assert streams.content(copy).endswith(b"8888888888own")


@pytest.mark.parametrize("header", ["Stream-Retention-Age", "Stream-Retention-Bytes"])
@pytest.mark.parametrize("value", ["-1", "1.5", "", "01", "1e3", "9" * 16])
def test_a_malformed_retention_is_refused(streams: Streams, header: str, value: str) -> None:
    path = streams.path()
    refused(streams.put(path, TEXT, headers={header: value}), "INVALID_RETENTION")
    assert streams.head(path).status_code == 404


def test_a_put_that_names_another_retention_is_refused(streams: Streams) -> None:
    path = streams.new(TEXT, headers={"Stream-Retention-Bytes": "50"})
    assert streams.put(path, TEXT).status_code == 200
    assert streams.put(path, TEXT, headers={"Stream-Retention-Bytes": "50"}).status_code == 200
    refused(streams.put(path, TEXT, headers={"Stream-Retention-Bytes": "51"}), "STREAM_EXISTS")
    plain = streams.new(TEXT)
    refused(streams.put(plain, TEXT, headers={"Stream-Retention-Bytes": "51"}), "STREAM_EXISTS")
    assert not any(name.startswith("stream-retention") for name in _names(streams.head(plain)))


def _names(answer: httpx.Response) -> list[str]:
    return [name.lower() for name in answer.headers]


def test_a_live_reader_that_is_too_slow_is_ended_and_then_told(streams: Streams) -> None:
    """A long poll at an offset that is dropped while it waits for more: it ends with the refusal of that offset."""
    path = streams.new(TEXT, b"first", headers={"Stream-Retention-Age": "2"})
    start = offset_of(streams.head(path))
    until(lambda: streams.content(path) == b"")
    assert streams.get(path, offset=start).status_code == 200, "the offset behind the dropped content is the new front"
    streams.post(path, b"second", content_type=TEXT)
    until(lambda: streams.content(path) == b"")
    refused(streams.get(path, offset=start), "STREAM_GONE")
