"""One asynchronous client in several event loops: one after another, and at once in several threads."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading

import pytest

from semel.client import AsyncClient, Patience, SemelError
from tests.client.names import PATIENCE_SECONDS, fresh, until
from tests.client.raw_server import raw_server, request_of
from tests.harness.server import RunningServer

pytestmark = pytest.mark.usefixtures("each_loop")

ONE_TRY = Patience(tries=1)


def test_each_loop_has_connections_of_its_own_which_end_with_it() -> None:
    ended = list[int]()

    def behave(connection: socket.socket, number: int) -> None:
        while request_of(connection):
            connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{"version":"1"}')
        ended.append(number)

    with raw_server(behave) as url:
        client = AsyncClient(url, patience=ONE_TRY)

        async def main(round_number: int) -> None:
            await asyncio.gather(*(client.server.version() for _ in range(3)))
            assert await client.server.version() == "1"

        for round_number in range(4):
            asyncio.run(main(round_number))
            gc.collect()  # a connection that was left open would warn
            asyncio.run(until(lambda seen=3 * (round_number + 1): len(ended) == seen))


def test_loops_of_several_threads_share_a_client(server: RunningServer) -> None:
    client, stream, faults = (
        AsyncClient(server.url, patience=ONE_TRY, connections=2),
        fresh("stream"),
        list[BaseException](),
    )

    async def append(name: str) -> None:
        await asyncio.gather(*(client.streams.append(stream, b"x", key=f"{name}-{n}") for n in range(20)))

    def work(name: str) -> None:
        try:
            for turn in range(3):
                asyncio.run(append(f"{name}-{turn}"))
        except BaseException as error:  # noqa: BLE001 - raised below
            faults.append(error)

    async def created() -> None:
        await client.streams.create(stream)

    async def stored() -> int:
        async with client:
            return len((await client.streams.read(stream)).data)

    asyncio.run(created())
    threads = [threading.Thread(target=work, args=(str(n),)) for n in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(PATIENCE_SECONDS)
    assert faults == []
    assert asyncio.run(stored()) == 4 * 3 * 20
    with pytest.raises(SemelError, match="closed"):
        asyncio.run(stored())
