"""The official clients of Durable Streams, for JavaScript and for Python, drive a real server.

They create, append, read, tail, fork and close. What a client has no call for goes by the header of the protocol.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from itertools import islice

import pytest
from durable_streams import AsyncDurableStream, DurableStream, HeadersLike, StreamNotFoundError, stream

from tests.harness.server import RunningServer
from tests.official.test_official import INSTALL_SECONDS, find_node, install, run

JSON = "application/json"
SCRIPT_SECONDS = 60
pytestmark = pytest.mark.timeout(INSTALL_SECONDS + SCRIPT_SECONDS + 60)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    env = {"SEMEL_STREAMS_LONG_POLL_MS": "500"}  # a client that is left waits for the end of its poll
    with RunningServer(tmp_path_factory.mktemp("clients") / "data", env=env) as running:
        yield running


def test_the_client_for_javascript_creates_appends_reads_tails_forks_and_closes(server: RunningServer) -> None:
    node = find_node()
    install(node)
    env = node.env | {"SEMEL_URL": server.url, "SEMEL_PREFIX": "npm"}
    done = run([node.node, "clients.mjs"], seconds=SCRIPT_SECONDS, env=env)
    assert done.returncode == 0, done.stdout
    assert json.loads(done.stdout) == {
        "read": [{"number": 1}, {"number": 2}, {"number": 3}],
        "head": {"contentType": JSON, "isAtEnd": True, "closed": False},
        "polled": [{"number": 4}, {"number": 5}],
        "events": [{"number": 4}, {"number": 5}, {"number": 6}],
        "numbers": [*range(1, 207), None],
        "closed": {"isAtEnd": True, "streamClosed": True},
        "refused": 409,
        "whole": 206,
        "early": [{"number": 1}, {"number": 2}, {"number": 3}, {"own": True}],
        "bytes": True,
        "exists": False,
    }


def read_json(url: str) -> list[object]:
    with stream(url, live=False) as response:
        return list(response.read_json())


@pytest.mark.parametrize("live", ["long-poll", "sse"])
def test_the_client_for_python_creates_appends_reads_and_tails(server: RunningServer, live: str) -> None:
    url = f"{server.url}/v1/stream/pypi/{live}"
    with DurableStream.create(url, content_type=JSON, ttl_seconds=3_600) as log:
        for number in range(3):
            log.append({"number": number})
        with log.stream(live=False) as response:
            assert response.read_json() == [{"number": 0}, {"number": 1}, {"number": 2}]
            at = response.offset
        head = log.head()
        assert (head.offset, head.content_type) == (at, JSON)
        with log.stream(offset=at, live=live) as response:  # type: ignore[arg-type]
            items = response.iter_json()
            log.append({"number": 3})
            log.append({"number": 4})
            assert list(islice(items, 2)) == [{"number": 3}, {"number": 4}]


def test_the_client_for_python_closes_and_forks_by_header(server: RunningServer) -> None:
    url, fork = f"{server.url}/v1/stream/pypi/source", f"{server.url}/v1/stream/pypi/fork"
    with DurableStream.create(url, content_type=JSON) as log:
        first = log.append({"number": 0})
        log.append({"number": 1})
    source: HeadersLike = {"Stream-Forked-From": "/v1/stream/pypi/source", "Stream-Fork-Offset": first.next_offset}
    DurableStream.create(fork, content_type=JSON, headers=source).close()
    with DurableStream(url, content_type=JSON, headers={"Stream-Closed": "true"}) as log:
        last = log.append({"number": 2})
    with stream(url, live=False) as response:
        assert response.read_json() == [{"number": 0}, {"number": 1}, {"number": 2}]
        assert response.offset == last.next_offset
    with DurableStream(fork, content_type=JSON) as log:
        log.append({"own": True})
        assert read_json(fork) == [{"number": 0}, {"own": True}]
        log.delete()
        with pytest.raises(StreamNotFoundError):
            log.head()
    assert read_json(url) == [{"number": 0}, {"number": 1}, {"number": 2}]


def test_the_asynchronous_client_for_python_appends_together_and_reads_pages(server: RunningServer) -> None:
    url = f"{server.url}/v1/stream/pypi/many"

    async def main() -> None:
        async with await AsyncDurableStream.create(url, content_type=JSON) as log:
            await asyncio.gather(*(log.append({"number": number, "text": "x" * 100}) for number in range(500)))
            async with log.stream(live=False) as response:
                numbers = [item["number"] for item in await response.read_json()]
            assert sorted(numbers) == list(range(500))

    asyncio.run(main())
