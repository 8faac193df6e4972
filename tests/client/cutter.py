"""A line to a server that can be cut: before a request arrives, or between its answer and whoever asked."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from types import TracebackType
from typing import Self

from tests.harness.server import HOST


class Cutter:
    """Passes bytes on, in the loop of the test, and cuts the line at requests that it was told to wait for."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._before: Counter[bytes] = Counter()
        self._after: Counter[bytes] = Counter()
        self._over = asyncio.Event()
        self._lines: set[asyncio.Task[None]] = set()
        self.cuts: list[str] = []
        """The targets of requests that were cut, in order."""

    def cut_request(self, target: str, times: int = 1) -> None:
        """The next requests whose path ends like this do not arrive."""
        self._before[target.encode()] += times

    def cut_answer(self, target: str, times: int = 1) -> None:
        """The next requests whose path ends like this arrive; their answers do not."""
        self._after[target.encode()] += times

    def forget(self) -> None:
        """Cut nothing more."""
        self._before.clear()
        self._after.clear()

    @property
    def url(self) -> str:
        """The server's address, over this line."""
        return f"http://{HOST}:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, HOST, 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        self._over.set()
        await asyncio.gather(*self._lines, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = asyncio.current_task()
        assert line is not None
        self._lines.add(line)
        answers, questions = await asyncio.open_connection(HOST, self._target)
        is_cut = asyncio.Event()
        pumps = [
            asyncio.create_task(self._pass_on(reader, questions, is_cut)),
            asyncio.create_task(_give_back(answers, writer, is_cut)),
            asyncio.create_task(self._ended()),
        ]
        try:
            # Whichever side ends first ends both, and so does the end of the test.
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for side in (writer, questions):
                side.close()
            await asyncio.gather(writer.wait_closed(), questions.wait_closed(), return_exceptions=True)
            self._lines.discard(line)

    async def _ended(self) -> None:
        await self._over.wait()

    async def _pass_on(
        self, questions: asyncio.StreamReader, server: asyncio.StreamWriter, is_cut: asyncio.Event
    ) -> None:
        with suppress(OSError):
            while data := await questions.read(65_536):
                if self._is_cut(data, self._before):
                    return
                if self._is_cut(data, self._after):
                    is_cut.set()
                server.write(data)
                await server.drain()

    def _is_cut(self, data: bytes, wanted: Counter[bytes]) -> bool:
        target = data.split(b"\r\n", 1)[0].split(b" ")[1:2]
        for end in +wanted:
            if target and target[0].split(b"?")[0].endswith(end):
                wanted[end] -= 1
                self.cuts.append(target[0].decode())
                return True
        return False


async def _give_back(answers: asyncio.StreamReader, client: asyncio.StreamWriter, is_cut: asyncio.Event) -> None:
    with suppress(OSError):
        while (data := await answers.read(65_536)) and not is_cut.is_set():
            client.write(data)
            await client.drain()
