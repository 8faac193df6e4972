"""An event stream tells of events that were pruned before it could send them."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx
import pytest

from tests.events.wire import PATIENCE_SECONDS, Events, fresh, item, serving
from tests.harness.together import eventually

RETENTION_MS = "2000"
BUFFER_BYTES = "65536"


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory, store_kind: str) -> Iterator[Events]:
    """A server that forgets soon, and keeps little for a reader that is slow."""
    with serving(
        tmp_path_factory.mktemp("pruned") / "data",
        EVENTS_RETENTION_MS=RETENTION_MS,
        EVENTS_BUFFER_BYTES=BUFFER_BYTES,
        SWEEP_INTERVAL_MS="50",
    ) as events:
        yield events


@pytest.fixture
def events(forgetful: Events) -> Iterator[Events]:
    yield forgetful
    forgetful.close_peers()


class Frame(NamedTuple):
    """One frame of an event stream: its fields as they stand there."""

    kind: str
    data: dict[str, Any]
    id: str | None


@contextmanager
def following(
    events: Events, room: str, since: int, headers: dict[str, str] | None = None
) -> Iterator[Iterator[Frame]]:
    """The frames of an event stream whose client has little room for what it has not read."""
    narrow = httpx.HTTPTransport(socket_options=[(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)])
    asked = {"partition": room, "since": str(since)}
    with (
        httpx.Client(base_url=events.server.url, timeout=PATIENCE_SECONDS, transport=narrow) as client,
        client.stream(
            "GET", "/v1/events", params=asked, headers={"Accept": "text/event-stream"} | (headers or {})
        ) as stream,
    ):
        assert stream.status_code == 200
        yield frames(stream.iter_lines())


def frames(lines: Iterator[str]) -> Iterator[Frame]:
    fields: dict[str, str] = {}
    comments = 0
    for line in lines:
        comments = comments + 1 if line == ":" else 0 if line else comments
        assert comments < 2, "nothing comes but comments"
        name, _, value = line.partition(": ")
        if line and name:
            fields[name] = value
        elif "data" in fields:
            yield Frame(fields["event"], json.loads(fields["data"]), fields.get("id"))
            fields = {}


def forgotten(events: Events, room: str, count: int = 3, letters: int = 1) -> list[int]:
    """Commit some events and wait until they are pruned; their places."""
    peer = events.peer()
    ids = [peer.commit(item([room], {"type": "t", "payload": "x" * letters}))[0] for _ in range(count)]
    eventually(lambda: peer.sync([room]).get("pruned_to_committed_id", 0) >= ids[-1], "they are pruned")
    return ids


@pytest.mark.parametrize("by", ["since", "Last-Event-ID"])
def test_c1_a_tail_from_below_the_pruned_edge_is_told_before_anything_else(events: Events, by: str) -> None:
    room = fresh("room")
    ids = forgotten(events, room)
    headers = {"Last-Event-ID": str(ids[0])} if by == "Last-Event-ID" else {}
    with following(events, room, ids[0] if by == "since" else 0, headers) as stream:
        [live] = events.peer().commit(item([room]))
        told = next(stream)
        assert (told.kind, told.id) == ("pruned", None)
        assert list(told.data) == ["pruned_to_committed_id"]
        assert told.data["pruned_to_committed_id"] >= ids[-1]
        frame = next(stream)
        assert (frame.kind, frame.id, frame.data["committed_id"]) == ("event", str(live), live)


def test_c1_a_tail_from_the_pruned_edge_on_is_told_nothing(events: Events) -> None:
    room = fresh("room")
    forgotten(events, room)
    peer = events.peer()
    edge = peer.sync([room])["pruned_to_committed_id"]
    with following(events, room, edge) as stream:
        [live] = peer.commit(item([room]))
        assert next(stream).id == str(live)


def test_c1_a_live_tail_that_is_overtaken_by_pruning_is_told_where_it_lost_events(events: Events) -> None:
    room, peer = fresh("room"), events.peer()
    with following(events, room, peer.watermark()) as stream:
        [first] = peer.commit(item([room]))
        assert next(stream).id == str(first), "it is live"
        ids = forgotten(events, room, 60, 200_000)  # more than buffers take, while it reads nothing
        seen: list[int] = []
        for frame in stream:
            if frame.kind == "pruned":
                break
            seen.append(frame.data["committed_id"])
        assert seen == ids[: len(seen)], "nothing is left out before it is told"
        assert len(seen) < len(ids), "the client was not slow enough"
        assert frame.kind == "pruned", "the stream has ended without a word"
        assert (frame.data["pruned_to_committed_id"] >= ids[-1], frame.id) == (True, None)
        [live] = peer.commit(item([room]))
        assert next(stream).id == str(live), "and it goes on"
