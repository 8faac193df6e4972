"""Kill a real server with SIGKILL under load, restart it, and check that nothing was lost, doubled or answered twice.

Every kill comes from outside, at a random moment; every other one is followed by a life that ends itself at one of the
named points of the commit path, in turn. In every third life commits are slow. `make crash` runs a hundred of them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import httpx

from tests.harness.lives import PointLives
from tests.harness.server import RunningServer
from tests.streams.crash.clients import Client, Operation
from tests.streams.crash.library_clients import LibraryClient, ThreadedClient
from tests.streams.crash.verdict import Verdict, judge

STREAMS = 4
CLIENTS_A_STREAM = 6
ALIVE_SECONDS = (0.15, 0.6)


class CrashRun:
    """One data folder, many lives."""

    def __init__(
        self, folder: Path, kills: int, seed: int, report: Callable[[int], None] = lambda done: None, store: str = ""
    ) -> None:
        self._server = RunningServer(folder / "data", env={"SEMEL_STORE": store})
        self._kills = kills
        self._chance = random.Random(seed)
        self._lives = PointLives(self._chance, (4, 20, 100))
        self._report = report

    def run(self) -> Verdict:
        """Kill and restart so many times, then judge."""
        with self._server:
            operations = asyncio.run(self._under_load())
            verdict = judge(self._server.url, operations)
        verdict.missed = self._lives.missed
        return verdict

    async def _under_load(self) -> list[Operation]:
        limits = httpx.Limits(max_connections=STREAMS * CLIENTS_A_STREAM)
        async with httpx.AsyncClient(base_url=self._server.url, timeout=10, limits=limits) as http:
            for stream in range(STREAMS):
                headers = {"Content-Type": "application/json"}
                answer = await http.put(f"/v1/stream/s{stream}", headers=headers, timeout=60)
                answer.raise_for_status()
            clients = [self._client(http, number) for number in range(STREAMS * CLIENTS_A_STREAM)]
            stop = asyncio.Event()
            work = [asyncio.create_task(client.work(stop)) for client in clients]
            for done in range(self._kills):
                await self._one_kill(done)
                self._report(done + 1)
            stop.set()
            await asyncio.gather(*work)
        return [operation for client in clients for operation in client.operations]

    def _client(self, http: httpx.AsyncClient, number: int) -> Client:
        """A third writes by hand, a third with `AsyncClient`, a third with `Client`; a third of each are producers."""
        stream, name, keyed = f"s{number % STREAMS}", f"c{number}", number // 3 % 3 != 0
        if number % 3 == 0:
            return Client(http, stream, name, keyed=keyed, seed=number)
        kind = LibraryClient if number % 3 == 1 else ThreadedClient
        return kind(self._server.url, stream, name, keyed=keyed, seed=number)

    async def _one_kill(self, number: int) -> None:
        """Every other life dies by itself, at a named point; the rest are killed from outside."""
        await asyncio.sleep(self._chance.uniform(*ALIVE_SECONDS))
        await asyncio.to_thread(self._server.kill)
        if number % 2:
            await asyncio.to_thread(self._lives.end_next, self._server)
        await asyncio.to_thread(self._lives.start_next, self._server, number)
