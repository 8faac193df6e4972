"""A line to a server that counts what passes: requests by name, and bytes on their way to the client."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from types import TracebackType
from typing import Self

from tests.harness.server import HOST

_HEAD = re.compile(rb"(GET|POST) (\S+) HTTP/1\.1\r\n")


class Wiretap:
    """Passes bytes on, in the loop of the test."""

    def __init__(self, port: int, *, has_websockets: bool = True) -> None:
        """Without WebSockets it is like a proxy that does not know of them: it ends the connection."""
        self._target = port
        self._has_websockets = has_websockets
        self._lines: set[asyncio.Task[None]] = set()
        self.requests: list[str] = []
        """Method and last part of the path of each request."""
        self.received = 0
        """Bytes that the server has sent."""

    @property
    def url(self) -> str:
        """The server's address, over this line."""
        return f"http://{HOST}:{self.port}"

    def count(self, request: str) -> int:
        """How many such requests there were."""
        return self.requests.count(request)

    async def cut(self) -> None:
        """End all connections."""
        lines = tuple(self._lines)
        self._lines.clear()
        for line in lines:
            line.cancel()
        await asyncio.gather(*lines, return_exceptions=True)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, HOST, 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        await self.cut()

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = asyncio.create_task(self._pass_on(reader, writer))
        self._lines.add(line)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, out = await asyncio.open_connection(HOST, self._target)
        pumps = [asyncio.create_task(self._ask(reader, out)), asyncio.create_task(self._give(back, writer))]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            for side in (writer, out):
                side.close()

    async def _ask(self, reader: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                if found := _HEAD.match(data):
                    method, target = (one.decode() for one in found.groups())
                    name = f"{method} {target.partition('?')[0].rpartition('/')[2]}"
                    self.requests.append(name)
                    if name == "GET ws" and not self._has_websockets:
                        return
                out.write(data)
                await out.drain()

    async def _give(self, back: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await back.read(65_536):
                self.received += len(data)
                writer.write(data)
                await writer.drain()
