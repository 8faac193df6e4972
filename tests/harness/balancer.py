"""A load balancer for clients that know one address: each connection goes to the next node."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from tests.harness.server import HOST

PATIENCE_SECONDS = 60.0


class Balancer:
    """Passes bytes on, in a thread of its own, while the block runs."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._turns = itertools.cycle(ports)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.connections = 0
        self.port = 0

    @property
    def url(self) -> str:
        """The address of all nodes."""
        return f"http://{HOST}:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        listening = asyncio.start_server(self._serve, HOST, 0, limit=2**20)
        self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result(PATIENCE_SECONDS)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(PATIENCE_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_SECONDS)
        self._loop.close()

    async def _stop(self) -> None:
        self._server.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            answers, questions = await asyncio.open_connection(HOST, next(self._turns), limit=2**20)
        except OSError:
            writer.close()
            return
        # Whichever side ends first ends both.
        pumps = [asyncio.create_task(_pump(reader, questions)), asyncio.create_task(_pump(answers, writer))]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            for side in (writer, questions):
                side.close()


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(65_536):
            target.write(data)
            await target.drain()
    except OSError:
        return
