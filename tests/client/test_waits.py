"""Calls that wait leave connections for those that do not, however many they are."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from semel.client import Patience
from semel.client.access import Address
from semel.client.transport.network import ByteStream
from tests.client.both import BOTH, client_of, network_of
from tests.client.cut_network import CutNetwork
from tests.client.names import PATIENCE_SECONDS, fresh, until
from tests.harness.server import RunningServer

CONNECTIONS = 4
WAITS = 3 * CONNECTIONS
SHORT = Patience(tries=1, seconds=5.0)


class CountingNetwork(CutNetwork):
    """Counts connections."""

    made = 0

    async def connect(self, address: Address, seconds: float) -> ByteStream:
        self.made += 1
        return await super().connect(address, seconds)

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


@BOTH
async def test_a_write_beside_many_waits_for_results_does_not_wait(server: RunningServer, kind: str) -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2 * WAITS))
    name, network = fresh("kind"), CountingNetwork(network_of(kind))
    options = {"connections": CONNECTIONS, "patience": SHORT, "network": network}
    async with client_of(kind, server.url, **options) as client, client_of("async", server.url) as direct:
        jobs = [(await direct.jobs.submit(name)).job_id for _ in range(WAITS)]
        waits = [asyncio.create_task(client.jobs.result(one, wait=PATIENCE_SECONDS)) for one in jobs]
        await until(lambda: network.made >= CONNECTIONS)
        await client.streams.create(fresh("stream"))
        assert not any(one.done() for one in waits)
        for lease in (await direct.jobs.claim("w", most=WAITS, kinds=[name])).leases:
            await direct.jobs.complete(lease, lease.job_id)
        assert [(await one).result for one in waits] == jobs
        assert network.made <= 2 * CONNECTIONS
