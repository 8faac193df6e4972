"""CPU time of a client for one keyed append and one event: Semel's two clients beside bare aiohttp and httpx.

The bare ones send the same bytes and do nothing else: no identity, no retry, no typed answer. One connection, one
request at a time, candidates in alternating rounds; the CPU time is that of this process alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import httpx

from semel import AsyncClient, Client
from tests.harness.server import RunningServer

REQUESTS = 2_000
ROUNDS = 5
BODY = b"a message of a usual size, 48 bytes long, no more"
Candidate = Callable[[str, int], Awaitable[None]]
CALLS = ("append", "event")
BARE = "aiohttp, bare"


class Bare:
    """The same bytes through an HTTP library and nothing else."""

    def __init__(
        self, url: str, session: aiohttp.ClientSession, client: httpx.AsyncClient, blocking: httpx.Client
    ) -> None:
        self._urls = {"append": f"{url}/v1/stream/bench", "event": f"{url}/v1/events"}
        self._session, self._client, self._blocking = session, client, blocking

    async def aiohttp(self, call: str, count: int) -> None:
        """Send and read each answer."""
        for _ in range(count):
            body, headers = content_of(call)
            async with self._session.post(self._urls[call], data=body, headers=headers) as answer:
                read(answer.status, await answer.read())

    async def httpx(self, call: str, count: int) -> None:
        """Send and read each answer."""
        for _ in range(count):
            body, headers = content_of(call)
            answer = await self._client.post(self._urls[call], content=body, headers=headers)
            read(answer.status_code, answer.content)

    async def httpx_sync(self, call: str, count: int) -> None:
        """Send and read each answer, without an event loop's help."""
        for _ in range(count):
            body, headers = content_of(call)
            answer = self._blocking.post(self._urls[call], content=body, headers=headers)
            read(answer.status_code, answer.content)


def content_of(call: str) -> tuple[bytes, dict[str, str]]:
    """A body and its headers, with a new identity."""
    if call == "append":
        return BODY, {"Content-Type": "application/octet-stream", "Idempotency-Key": str(uuid.uuid4())}
    event = {"id": str(uuid.uuid4()), "partitions": ["bench"], "event": {"type": "set", "payload": {"n": 1}}}
    return json.dumps({"events": [event]}).encode(), {"Content-Type": "application/json"}


def read(status: int, body: bytes) -> None:
    """Check an answer as the simplest program would."""
    assert status in (200, 204)
    if body:
        json.loads(body)


class Ours:
    """The calls of both clients."""

    def __init__(self, client: AsyncClient, blocking: Client) -> None:
        self._client, self._blocking = client, blocking

    async def asynchronous(self, call: str, count: int) -> None:
        """`AsyncClient`."""
        for _ in range(count):
            if call == "append":
                await self._client.streams.append("bench", BODY)
            else:
                await self._client.events.submit("set", {"n": 1}, partitions=["bench"])

    async def blocking(self, call: str, count: int) -> None:
        """`Client`."""
        for _ in range(count):
            if call == "append":
                self._blocking.streams.append("bench", BODY)
            else:
                self._blocking.events.submit("set", {"n": 1}, partitions=["bench"])


async def candidates(url: str, opened: AsyncExitStack) -> dict[str, Candidate]:
    """Each client with a function that makes a number of calls."""
    ours = Ours(await opened.enter_async_context(AsyncClient(url)), opened.enter_context(Client(url)))
    session = await opened.enter_async_context(aiohttp.ClientSession())
    bare = Bare(
        url, session, await opened.enter_async_context(httpx.AsyncClient()), opened.enter_context(httpx.Client())
    )
    return {
        "semel.AsyncClient": ours.asynchronous,
        "semel.Client": ours.blocking,
        BARE: bare.aiohttp,
        "httpx async, bare": bare.httpx,
        "httpx sync, bare": bare.httpx_sync,
    }


async def measure(url: str, rounds: int, requests: int) -> dict[tuple[str, str], list[float]]:
    """The CPU microseconds a request of each call and client, one value a round."""
    found: dict[tuple[str, str], list[float]] = {}
    async with AsyncExitStack() as opened:
        every = [(call, name, run) for call in CALLS for name, run in (await candidates(url, opened)).items()]
        for call, _, run in every:
            await run(call, 50)
        for _ in range(rounds):
            for call, name, run in every:
                began = time.process_time()
                await run(call, requests)
                found.setdefault((call, name), []).append((time.process_time() - began) / requests * 1e6)
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, RunningServer(Path(folder) / "data") as server:
        with Client(server.url) as client:
            client.streams.create("bench")
        found = asyncio.run(measure(server.url, options.rounds, options.requests))
    print("| call | client | CPU a request | of aiohttp bare |\n|---|---|---|---|")
    for (call, name), values in found.items():
        median, bare = statistics.median(values), statistics.median(found[call, BARE])
        print(f"| {call} | {name} | {median:.0f} µs | {median / bare:.2f} |")


if __name__ == "__main__":
    main()
