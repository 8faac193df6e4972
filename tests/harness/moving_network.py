"""Networks for clients of the library in harnesses that kill servers: every connection goes to any of the nodes.

They do not pause long between attempts, because a server is back soon and is killed soon. A process can be made to die
between what it has sent and what it would hear.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Sequence
from dataclasses import replace

from semel.client.access import Address, TlsFiles
from semel.client.transport.asyncio_network import AsyncioNetwork
from semel.client.transport.network import ByteStream
from semel.client.transport.socket_network import BlockingNetwork

PAUSE_SECONDS = 0.15


class MortalStream:
    """A connection on which the process can die instead of hearing an answer."""

    def __init__(self, inner: ByteStream, route: Route) -> None:
        self._inner = inner
        self._route = route

    @property
    def is_idle(self) -> bool:
        return self._inner.is_idle

    async def send(self, data: bytes, seconds: float) -> None:
        await self._inner.send(data, seconds)

    async def receive(self, seconds: float) -> bytes:
        if self._route.is_dying:
            os.kill(os.getpid(), signal.SIGKILL)
        return await self._inner.receive(seconds)

    def close(self) -> None:
        self._inner.close()

    def abandon(self) -> None:
        self._inner.abandon()


class Route:
    """Where the next connection goes, and whether the next answer is heard."""

    def __init__(self, ports: Sequence[int], chance: random.Random) -> None:
        self._ports = ports
        self._chance = chance
        self.is_dying = False
        """Whether this process dies when it would read an answer."""

    def to_any(self, address: Address) -> Address:
        """The address with the port of one of the nodes."""
        return replace(address, port=self._chance.choice(self._ports))


class MovingNetwork(BlockingNetwork):
    """The network of `Client`."""

    def __init__(self, ports: Sequence[int], chance: random.Random) -> None:
        super().__init__(TlsFiles().context)
        self.route = Route(ports, chance)

    async def connect(self, address: Address, seconds: float) -> ByteStream:  # type: ignore[override]
        """A connection to any node."""
        return MortalStream(await super().connect(self.route.to_any(address), seconds), self.route)

    async def sleep(self, seconds: float) -> None:
        """A short pause."""
        time.sleep(min(seconds, PAUSE_SECONDS))  # noqa: ASYNC251 - this network blocks by design


class MovingAsyncioNetwork(AsyncioNetwork):
    """The network of `AsyncClient`."""

    def __init__(self, ports: Sequence[int], chance: random.Random) -> None:
        super().__init__(TlsFiles().context)
        self.route = Route(ports, chance)

    async def connect(self, address: Address, seconds: float) -> ByteStream:  # type: ignore[override]
        """A connection to any node."""
        return MortalStream(await super().connect(self.route.to_any(address), seconds), self.route)

    async def sleep(self, seconds: float) -> None:
        """A short pause."""
        await asyncio.sleep(min(seconds, PAUSE_SECONDS))
