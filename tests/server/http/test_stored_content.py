"""What clients have stored is given back so that no browser runs it in the name of this server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.harness.server import RunningServer

PAGE = b"<script>fetch('/v1/stream/secrets')</script>"
HTML = {"Content-Type": "text/html"}
STREAM = "/v1/stream/page"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder: Path = tmp_path_factory.mktemp("stored")
    env = {"SEMEL_STORE": "memory:", "SEMEL_STREAMS_LONG_POLL_MS": "200", "SEMEL_STREAMS_SSE_MAX_MS": "200"}
    with RunningServer(folder / "data", env=env) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        client.put(STREAM, headers=HTML, content=PAGE).raise_for_status()
        event = {"id": "e1", "partitions": ["p"], "event": {"type": "t", "payload": PAGE.decode()}}
        client.post("/v1/events", json={"events": [event]})
        client.post("/v1/jobs", json={"kind": "k", "params": PAGE.decode(), "idempotency_key": "j1"})
        yield client


def is_sandboxed(answer: httpx.Response) -> bool:
    return (answer.headers["Content-Security-Policy"], answer.headers["X-Content-Type-Options"]) == (
        "sandbox",
        "nosniff",
    )


def test_b4_stored_content_is_sandboxed_however_it_is_read(client: httpx.Client) -> None:
    """Answers of every operation without content: `tests/openapi/test_every_operation.py`."""
    for offset in ("-1", "now"):
        for live in ({}, {"live": "long-poll"}, {"live": "sse"}):
            assert is_sandboxed(client.get(STREAM, params={"offset": offset} | live)), (offset, live)
    for path in ("/v1/events?partition=p", "/v1/jobs", "/v1/streams", "/<script>"):
        assert is_sandboxed(client.get(path)), path
    assert is_sandboxed(client.put(STREAM, headers=HTML))


def test_b4_a_page_that_is_the_clients_own_copy_still_is(client: httpx.Client) -> None:
    known = client.get(STREAM, params={"offset": "-1"})
    assert (known.content, known.headers["Content-Type"]) == (PAGE, "text/html")
    same = client.get(STREAM, params={"offset": "-1"}, headers={"If-None-Match": known.headers["ETag"]})
    assert (same.status_code, same.headers["Content-Security-Policy"]) == (304, "sandbox")


def test_b4_an_event_stream_of_events_is_sandboxed(client: httpx.Client) -> None:
    asked = {"Accept": "text/event-stream"}
    with client.stream("GET", "/v1/events", params={"partition": "p", "since": "0"}, headers=asked) as answer:
        assert answer.status_code == 200
        assert answer.headers["Content-Security-Policy"] == "sandbox"
