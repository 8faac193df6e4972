"""`client.with_options(patience=...)`: a client with another retry policy, over the same connections."""

from __future__ import annotations

import inspect
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from semel.client import BusyError, Client, Patience, SemelError
from tests.client.both import BOTH, client_of
from tests.client.names import fresh
from tests.client.raw_server import always, raw_server, request_of
from tests.harness.server import RunningServer

BUSY = b'HTTP/1.1 503 Busy\r\nContent-Length: 36\r\n\r\n{"error":"busy","message":"No room"}'
VERSION = b'HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{"version":"1"}'
THREE_TRIES, ONE_TRY = Patience(tries=3), Patience(tries=1)

CALLS: dict[str, Callable[[Any], Awaitable[object]]] = {
    "server": lambda client: client.server.version(),
    "streams": lambda client: client.streams.append("s", b"x", key="k"),
    "events": lambda client: client.events.get("e"),
    "jobs": lambda client: client.jobs.submit("k", key="k"),
    "ledger": lambda client: client.ledger.organization(1),
    "tokens": lambda client: client.tokens.list(),
    "writes": lambda client: client.writes.find("k"),
    "deltas_admin": lambda client: client.deltas_admin.stats("g"),
}


@BOTH
@pytest.mark.parametrize("surface", CALLS)
async def test_each_client_keeps_its_own_patience_on_every_surface(kind: str, surface: str) -> None:
    asked: list[bytes] = []

    async def tries_of(client: Any) -> int:
        asked.clear()
        with pytest.raises(SemelError):
            await CALLS[surface](client)
        return len(asked)

    with raw_server(always(BUSY, asked)) as url:
        async with client_of(kind, url, patience=THREE_TRIES) as patient:
            assert await tries_of(patient) == 3
            hasty = patient.with_options(patience=ONE_TRY)
            assert [await tries_of(hasty), await tries_of(patient)] == [1, 3]
            assert await tries_of(hasty.with_options(patience=Patience(tries=2))) == 2


@BOTH
async def test_both_clients_share_a_connection_a_token_and_their_end(kind: str) -> None:
    requests: list[tuple[int, bytes]] = []

    def behave(connection: socket.socket, number: int) -> None:
        while request := request_of(connection):
            requests.append((number, request))
            connection.sendall(VERSION)

    async def done(call: Any) -> Any:
        return await call if inspect.isawaitable(call) else call

    with raw_server(behave) as url:
        client = client_of(kind, url, token="first")
        other = client.with_options(patience=ONE_TRY)
        assert [await client.server.version(), await other.server.version()] == ["1", "1"]
        await done(client.use_token("second"))
        await other.server.version()
        assert [number for number, _ in requests] == [0, 0, 0]
        assert b"Bearer second" in requests[-1][1]
        await other.close()
        with pytest.raises(SemelError, match="closed"):
            await client.server.version()


def test_a_client_of_a_users_own_class_stays_one(server: RunningServer) -> None:
    class Shop(Client):
        name = ""

    with Shop(server.url) as shop:
        shop.name = fresh("shop")
        other = shop.with_options(patience=ONE_TRY)
        assert (type(other), other.name, other.access) == (Shop, shop.name, shop.access)


def test_the_error_of_the_last_try_is_raised_as_it_is() -> None:
    with raw_server(always(BUSY, [])) as url, Client(url) as client, pytest.raises(BusyError):
        client.with_options(patience=ONE_TRY).server.ready()
