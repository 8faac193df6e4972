"""Frames of event streams in the pages are those of a real server, line by line."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from itertools import islice
from typing import Any

import httpx
import pytest

from docs.site.stage import ROOT
from tests.docs.reader import blocks
from tests.docs.terminal import commands
from tests.harness.server import RunningServer
from tests.harness.together import eventually

STREAM = ("docs/reference/http.md", "event: control")
PRUNED = ("docs/guide/events.md", "event: pruned")
READ = (STREAM, PRUNED)
JSON = {"Content-Type": "application/json"}


def shown(place: tuple[str, str]) -> list[str]:
    page, part = place
    [text] = [one.text for one in blocks((ROOT / page).read_text("utf-8")) if part in one.text]
    return text.strip().split("\n")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One that forgets events soon."""
    env = {"SEMEL_EVENTS_RETENTION_MS": "1", "SEMEL_SWEEP_INTERVAL_MS": "50"}
    with RunningServer(tmp_path_factory.mktemp("frames") / "data", env=env) as running:
        yield running


def lines(url: str, count: int, **headers: str) -> list[str]:
    """The first lines of an event stream, without comments."""
    with httpx.stream("GET", url, headers=headers, timeout=60) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        return list(islice((line for line in answer.iter_lines() if not line.startswith(":")), count))


def names(line: str) -> dict[str, Any]:
    """The members of a data line, with the types of their values."""
    found = json.loads(line.removeprefix("data:"))
    return {name: type(value) for name, value in found.items()}


def test_an_event_stream_of_content_has_the_frames_that_are_shown(server: RunningServer) -> None:
    url = f"{server.url}/v1/stream/notes"
    httpx.put(url, headers={"Content-Type": "text/plain"})
    httpx.post(url, content=b"one\ntwo", headers={"Content-Type": "text/plain"})
    form = shown(STREAM)
    real = lines(f"{url}?offset=-1&live=sse", len(form) + 1)
    assert [line for line in real if line.startswith("event")] == [line for line in form if line.startswith("event")]
    assert real[:4] == [form[0], "data:one", "data:two", ""]
    assert re.fullmatch("data:<one line of content for each of these lines>", form[1])
    assert real[4] == form[3]
    assert names(real[5]) == names(form[4])


def test_a_tail_that_begins_before_what_is_kept_has_the_frame_that_is_shown(server: RunningServer) -> None:
    event = {"id": "order-1", "partitions": ["shop-4"], "event": {"type": "order.placed"}}
    assert httpx.post(f"{server.url}/v1/events", json={"events": [event]}).json()["results"][0]["committed_id"] == 1
    url = f"{server.url}/v1/events?partition=shop-4&since=0"

    def is_pruned() -> bool:
        return bool(httpx.get(url).json().get("pruned_to_committed_id"))

    eventually(is_pruned, "the event is pruned")
    form = shown(PRUNED)
    real = lines(url, len(form) + 1, Accept="text/event-stream")
    assert real[0] == form[0]
    assert real[1].startswith("data: {")
    assert names(real[1]) == names(form[1])
    assert real[2] == "", "it has no id"


def test_a_page_of_streams_ends_with_the_name_that_is_shown(server: RunningServer) -> None:
    for name in ("orders", "orders-2"):
        httpx.put(f"{server.url}/v1/stream/{name}", headers=JSON)
    [listing] = commands((ROOT / "docs/reference/http.md").read_text("utf-8"))
    line = listing.line.replace("http://127.0.0.1:8788", server.url)
    said = json.loads(subprocess.run(shlex.split(line), capture_output=True, check=True, timeout=60).stdout)
    assert [one["name"] for one in said["streams"]] == ["orders"]
    assert said | {"streams": "..."} == json.loads(listing.shown.replace("[...]", '"..."'))
