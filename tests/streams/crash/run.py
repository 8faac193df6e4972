"""Appends to streams while their server is killed: nothing may be lost, doubled or answered in two ways."""

from __future__ import annotations

from collections.abc import Sequence

import httpx

from tests.harness.crash.run import AsyncSurface, CoroutineClient, CrashPlan
from tests.harness.crash.verdict import Verdict
from tests.streams.crash.clients import Client
from tests.streams.crash.library_clients import LibraryClient, ThreadedClient
from tests.streams.crash.verdict import judge_appends

STREAMS = 4
CLIENTS_A_STREAM = 6
JSON = {"Content-Type": "application/json"}


class StreamsUnderKills(AsyncSurface):
    """Keyed appends and producers' numbered ones, by hand and with the library, over one server."""

    nodes = 1
    shows = ("appends", "interrupted")

    def __init__(self, plan: CrashPlan) -> None:
        super().__init__(plan)
        limits = httpx.Limits(max_connections=STREAMS * CLIENTS_A_STREAM)
        self._http = httpx.AsyncClient(base_url=self.servers[0].url, timeout=10, limits=limits)
        self._clients: list[Client] = []

    def prepare(self) -> None:
        """Make the streams."""
        for stream in range(STREAMS):
            httpx.put(f"{self.servers[0].url}/v1/stream/s{stream}", headers=JSON).raise_for_status()

    def coroutines(self) -> Sequence[CoroutineClient]:
        """A third writes by hand, a third with `AsyncClient`, a third with `Client`; a third of each are producers."""
        self._clients = [self._client(number) for number in range(STREAMS * CLIENTS_A_STREAM)]
        return self._clients

    def _client(self, number: int) -> Client:
        stream, name, keyed = f"s{number % STREAMS}", f"c{number}", number // 3 % 3 != 0
        if number % 3 == 0:
            return Client(self._http, stream, name, keyed=keyed, seed=number)
        kind = LibraryClient if number % 3 == 1 else ThreadedClient
        return kind(self.servers[0].url, stream, name, keyed=keyed, seed=number)

    def progress(self) -> int:
        """How many appends have been answered."""
        return sum(len(operation.answers) for client in tuple(self._clients) for operation in tuple(client.operations))

    def judge(self, verdict: Verdict) -> None:
        """Against what the streams hold."""
        operations = [operation for client in self._clients for operation in client.operations]
        judge_appends(verdict, self.servers[0].url, operations)

    async def hang_up(self) -> None:
        """Close the connections of those who write by hand."""
        await self._http.aclose()
