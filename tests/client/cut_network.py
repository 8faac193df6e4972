"""A network whose connections can be cut at a byte: of what is sent, or of what is received. The server is real.

A cut closes the real socket. What was sent before it has arrived; what was to be received after it is lost.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable
from typing import TypeVar

from semel.client.access import Address
from semel.client.transport.network import Bell, ByteStream, Network, UseLimit

T = TypeVar("T")


class CutStream:
    """A connection with a limit of bytes in one direction."""

    def __init__(self, inner: ByteStream, network: CutNetwork) -> None:
        self.inner = inner
        self._network = network
        self.is_cut = False

    @property
    def is_idle(self) -> bool:
        return not self.is_cut and self.inner.is_idle

    async def send(self, data: bytes, seconds: float) -> None:
        most = self._network.request_left
        if most is not None and most < len(data):
            if most:
                await self.inner.send(data[:most], seconds)
            self._network.cut()
            self.inner.close()
            raise TimeoutError("cut")
        if most is not None:
            self._network.request_left = most - len(data)
        self._network.sent += len(data)
        await self.inner.send(data, seconds)

    async def receive(self, seconds: float) -> bytes:
        if self.is_cut:
            raise ConnectionResetError("cut")
        data = await self.inner.receive(seconds)
        most = self._network.answer_left
        if most is not None:
            if most < len(data):
                self.is_cut = True
                self._network.cut()
                self.inner.close()
                if most:
                    return data[:most]
                raise ConnectionResetError("cut")
            self._network.answer_left = most - len(data)
        self._network.received += len(data)
        return data

    def close(self) -> None:
        self.inner.close()

    def abandon(self) -> None:
        self.inner.abandon()


class CutBell:
    """A bell that waits beside the real connection."""

    def __init__(self, inner: Bell) -> None:
        self._inner = inner

    def ring(self) -> None:
        self._inner.ring()

    async def wait(self, seconds: float, stream: ByteStream | None = None) -> bool:
        if isinstance(stream, CutStream):
            if stream.is_cut:
                return False
            stream = stream.inner
        return await self._inner.wait(seconds, stream)

    def close(self) -> None:
        self._inner.close()


class CutNetwork:
    """Another network with cuts, and without pauses between attempts."""

    def __init__(self, inner: Network) -> None:
        self._inner = inner
        self.request_left: int | None = None
        """Bytes of requests that still pass before the line is cut; None cuts nothing."""
        self.answer_left: int | None = None
        self.sent = self.received = self.cuts = 0

    def cut(self) -> None:
        """Count a cut; the next connection is whole."""
        self.cuts += 1
        self.request_left = self.answer_left = None

    def loop(self) -> AbstractEventLoop | None:
        return self._inner.loop()

    async def connect(self, address: Address, seconds: float) -> ByteStream:
        return CutStream(await self._inner.connect(address, seconds), self)

    async def sleep(self, seconds: float) -> None:
        """No pause: a test cuts hundreds of times."""

    async def apart(self, work: Callable[[], T]) -> T:
        return await self._inner.apart(work)

    def now(self) -> float:
        return self._inner.now()

    def limit(self, most: int) -> UseLimit:
        return self._inner.limit(most)

    def bell(self) -> Bell:
        return CutBell(self._inner.bell())
