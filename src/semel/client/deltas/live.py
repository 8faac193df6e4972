"""The WebSocket of a replica for live changes by other clients.

It begins with a pull from the replica's cursor. From then on the server sends pages of others' entries, each of which
begins where the one before has ended; they are taken in as pages of a pull are. What is lost with the connection is
fetched by the pull that comes before the next one. One message waits here at most: while it does, nothing is read.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import suppress

import aiohttp

from semel.client.deltas import answers
from semel.client.deltas.replica import Replica
from semel.client.errors import BadAnswerError, NoAnswerError
from semel.client.reading import members
from semel.client.transport import Transport

FIRST_SECONDS, LONGEST_SECONDS = 1.0, 60.0
"""The pause after a WebSocket that was refused or has ended at once; twice as long after each further one, at most."""
STEADY_SECONDS = 10.0
"""One that has lasted as long was a good one."""
PAGE_ENTRIES = 1_000
CLOSE_SECONDS = 5.0


class LiveLine:
    """One WebSocket after the other, for one that follows."""

    def __init__(
        self,
        replica: Replica,
        transport: Transport,
        path: str,
        client: str,
        most_bytes: int,
        stirred: asyncio.Event,
        now: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`client` is canonical JSON; `stirred` is set when there is something to read."""
        self._replica = replica
        self._transport = transport
        self._path = path
        self._client = client
        self._most_bytes = most_bytes
        self._stirred = stirred
        self._now = now
        self._chance = chance
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._reader: asyncio.Task[None] | None = None
        self._inbox: asyncio.Queue[str] = asyncio.Queue(1)
        self._since = 0
        """The cursor of the next page."""
        self._vain = 0
        """How many in a row were refused, or have ended at once."""
        self._began = 0.0
        self._due = 0.0

    @property
    def is_open(self) -> bool:
        """Whether the server sends changes by itself, so that polling is not needed."""
        return self._socket is not None

    async def open(self) -> None:
        """Try to connect, if it is time to."""
        if self._now() < self._due:
            return
        self._began = self._now()
        try:
            self._socket = await self._transport.websocket(self._path, self._most_bytes)
            self._inbox = asyncio.Queue(1)
            self._reader = asyncio.create_task(self._read(self._socket, self._inbox))
            await self._ask(self._replica.progress.cursor)
        except NoAnswerError:
            await self.close()

    def next(self) -> answers.Page | None:
        """The page that has arrived, if any."""
        if self._inbox.empty():
            return None
        text = self._inbox.get_nowait()
        try:
            return answers.page(members(text.encode()), self._since)
        except ValueError:
            raise BadAnswerError(f"What answers at {self._transport.url} does not speak this protocol.") from None

    async def applied(self, page: answers.Page) -> None:
        """A page is in the file: the next one begins at its end."""
        self._since = page.cursor
        if page.has_more and self._socket is not None:
            with suppress(NoAnswerError):
                await self._ask(page.cursor)

    async def close(self) -> None:
        """Hang up, and say when to try again."""
        socket, reader, self._socket, self._reader = self._socket, self._reader, None, None
        self._put_off()
        if reader is not None:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
        if socket is not None:
            with suppress(TimeoutError, aiohttp.ClientError, OSError):
                await asyncio.wait_for(socket.close(), CLOSE_SECONDS)

    async def _ask(self, since: int) -> None:
        assert self._socket is not None
        own = self._replica.progress.own_after
        more = "" if own is None else f',"ownAfter":"{own}"'
        self._since = since
        try:
            text = f'{{"clientId":{self._client},"since":"{since}","limit":{PAGE_ENTRIES}{more}}}'
            await self._socket.send_str(text)
        except (aiohttp.ClientError, OSError) as error:
            raise NoAnswerError(f"The WebSocket has ended ({type(error).__name__}).", is_unsettled=False) from None

    async def _read(self, socket: aiohttp.ClientWebSocketResponse, inbox: asyncio.Queue[str]) -> None:
        try:
            async for message in socket:
                if message.type is not aiohttp.WSMsgType.TEXT:
                    break
                await inbox.put(message.data)
                self._stirred.set()
        finally:
            if self._socket is socket:
                self._socket = None
                self._put_off()
            self._stirred.set()
            with suppress(aiohttp.ClientError, OSError):
                await socket.close()

    def _put_off(self) -> None:
        """Come back at once after a good one, and later each time after others; not all replicas at the same time."""
        self._vain = 0 if self._now() - self._began >= STEADY_SECONDS else self._vain + 1
        pause = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(self._vain - 1, 16)) if self._vain else 0.0
        self._due = self._now() + pause * (0.5 + self._chance() / 2)
