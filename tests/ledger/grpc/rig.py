"""The server as a whole on a port, and a channel of a client that knows nothing of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from grpc import aio

from semel.server.grpc.health import health_class
from semel.surfaces.ledger.grpc.answers import place_pb
from semel.surfaces.ledger.grpc.listener import LedgerGrpc
from semel.surfaces.ledger.model import LedgerPlace
from semel.surfaces.ledger.proto import ledger_pb2 as pb
from tests.harness.server import HOST, free_port
from tests.ledger.wire.rig import Office

PATIENCE_SECONDS = 60.0
GRACE_SECONDS = 30.0
HEALTH_REQUEST = health_class("HealthCheckRequest")
HEALTH_RESPONSE = health_class("HealthCheckResponse")


def write_request(place: LedgerPlace, sequence: int, value: bytes) -> pb.WriteRequest:
    """One entity is set."""
    return pb.WriteRequest(
        **place_pb(place),
        client_id=pb.ClientId(id="app"),
        sequence=sequence,
        operations=[pb.Operation(set_entity=pb.SetEntity(key="k", value=value))],
    )


class Rig:
    """A server of one office and a channel to it."""

    def __init__(self, office: Office, grpc_host: LedgerGrpc, channel: Any) -> None:
        self.office = office
        self.host = grpc_host
        self.channel = channel

    async def ask(self, path: str, request: Any = None, **options: Any) -> bytes:
        content = b"" if request is None else request.SerializeToString()
        answer: bytes = await self.channel.unary_unary(path)(content, timeout=PATIENCE_SECONDS, **options)
        return answer

    async def refused(self, path: str, request: Any = None, **options: Any) -> aio.AioRpcError:
        with pytest.raises(aio.AioRpcError) as caught:
            await self.ask(path, request, **options)
        return caught.value

    async def write(self, place: LedgerPlace, sequence: int, value: bytes = b"v", **options: Any) -> pb.WriteResponse:
        request = write_request(place, sequence, value)
        return pb.WriteResponse.FromString(await self.ask("/ledger.v1.WriteService/Write", request, **options))

    def counted(self, name: str, number: int) -> int:
        return self.office.context.metrics.requests["ledger", f"grpc {name}", number]


@asynccontextmanager
async def rig_of(folder: Path, **settings: Any) -> AsyncIterator[Rig]:
    async with Office(folder, **settings) as office:
        server = LedgerGrpc(office.context, office.desk)
        await server.start(HOST, free_port())
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
        async with aio.insecure_channel(f"{HOST}:{server.port}", options=options) as channel:
            try:
                yield Rig(office, server, channel)
            finally:
                office.context.is_stopping = True
                await server.stop(GRACE_SECONDS)


def served(folder: Path, scenario: Callable[[Rig], Awaitable[None]], **settings: Any) -> None:
    """Run a scenario against a server of its own."""

    async def run() -> None:
        async with rig_of(folder, **settings) as rig:
            await asyncio.wait_for(scenario(rig), PATIENCE_SECONDS)

    asyncio.run(run())
