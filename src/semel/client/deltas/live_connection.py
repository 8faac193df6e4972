"""The WebSocket over which the server sends a replica the changes of other clients.

It starts at the replica's cursor. The server sends pages of other clients' entries, each of which starts where the last
one ended; they are applied like pages of a pull. Pages lost with a connection are fetched by the pull before the next
connection. At most one message is buffered: until it is taken, nothing is read.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import suppress

import aiohttp

from semel.client.answers import members
from semel.client.deltas import answers
from semel.client.deltas.replica import LocalReplica
from semel.client.errors import BadAnswerError, NoAnswerError
from semel.client.transport import Transport

FIRST_SECONDS, LONGEST_SECONDS = 1.0, 60.0
"""First and longest backoff after a WebSocket that was refused or ended at once; it doubles each time."""
STEADY_SECONDS = 10.0
"""A WebSocket that lasted at least this long resets the backoff."""
PAGE_ENTRIES = 1_000
CLOSE_SECONDS = 5.0


class LiveConnection:
    """The WebSocket of a follower, reopened with backoff."""

    def __init__(
        self,
        replica: LocalReplica,
        transport: Transport,
        path: str,
        client: str,
        most_bytes: int,
        stirred: asyncio.Event,
        now: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`client` is canonical JSON; `stirred` is set when a message has arrived."""
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
        """How many in a row were refused or ended at once."""
        self._began = 0.0
        self._due = 0.0

    @property
    def is_open(self) -> bool:
        """Whether the WebSocket is open, so that polling is not needed."""
        return self._socket is not None

    async def open(self) -> None:
        """Connect, unless the backoff has not passed."""
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

    def next(self) -> answers.ReplicaPage | None:
        """The page that has arrived, or None."""
        if self._inbox.empty():
            return None
        text = self._inbox.get_nowait()
        try:
            return answers.page(members(text.encode()), self._since)
        except ValueError:
            raise BadAnswerError(
                f"The server at {self._transport.url} does not speak this protocol: check the URL."
            ) from None

    async def applied(self, page: answers.ReplicaPage) -> None:
        """Record that a page is in the file: the next one starts at its end."""
        self._since = page.cursor
        if page.has_more and self._socket is not None:
            with suppress(NoAnswerError):
                await self._ask(page.cursor)

    async def close(self) -> None:
        """Close the WebSocket and set the time of the next attempt."""
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
        """Reconnect at once after a long connection, else with exponential backoff and jitter."""
        self._vain = 0 if self._now() - self._began >= STEADY_SECONDS else self._vain + 1
        pause = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(self._vain - 1, 16)) if self._vain else 0.0
        self._due = self._now() + pause * (0.5 + self._chance() / 2)
