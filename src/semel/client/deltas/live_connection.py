"""The WebSocket over which the server sends a replica the changes of other clients.

It starts at the replica's cursor. The server sends pages of other clients' entries, each of which starts where the last
one ended; they are applied like pages of a pull. A page is kept until it is in the file: a wait that was given up
before then gets it again. Pages lost with a connection are fetched by the pull before the next connection. Nothing is
read from it between two calls, so a slow follower does not fill memory; the server closes the connection of one that is
too slow.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AsyncExitStack

from semel.client.deltas import answers
from semel.client.deltas.replica import LocalReplica
from semel.client.errors import CallError
from semel.client.json_answer import facts_of
from semel.client.transport.http_transport import Transport
from semel.client.transport.network import Bell
from semel.client.transport.websocket import ClientWebSocket, open_websocket

FIRST_SECONDS, LONGEST_SECONDS = 1.0, 60.0
"""First and longest backoff after a WebSocket that was refused or ended at once; it doubles each time."""
STEADY_SECONDS = 10.0
"""A WebSocket that lasted at least this long resets the backoff."""
PAGE_ENTRIES = 1_000


class LiveConnection:
    """The WebSocket of a follower, reopened with backoff."""

    def __init__(
        self,
        replica: LocalReplica,
        transport: Transport,
        path: str,
        client: str,
        most_bytes: int,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`client` is canonical JSON."""
        self._replica = replica
        self._transport = transport
        self._now = transport.network.now
        self._path = path
        self._client = client
        self._most_bytes = most_bytes
        self._chance = chance
        self._stack: AsyncExitStack | None = None
        self._socket: ClientWebSocket | None = None
        self._since = 0
        """The cursor of the next page."""
        self._page: answers.ReplicaPage | None = None
        """The page that was received and is not known to be in the file."""
        self._vain = 0
        """How many in a row were refused or ended at once."""
        self._began = 0.0
        self._due = 0.0

    @property
    def is_open(self) -> bool:
        """Whether the WebSocket is open, so that polling is not needed."""
        return self._socket is not None

    async def open(self) -> None:
        """Connect, unless the backoff has not passed. A failure leaves it closed."""
        if self._now() < self._due:
            return
        self._began = self._now()
        self._stack = AsyncExitStack()
        try:
            opened = open_websocket(self._transport, self._path, self._most_bytes)
            self._socket = await self._stack.enter_async_context(opened)
            await self._ask(self._replica.progress.cursor)
        except CallError:
            await self.close()

    async def next(self, seconds: float, bell: Bell) -> answers.ReplicaPage | None:
        """The next page; None if none came within `seconds`, the bell rang, or the connection has ended.

        It is returned again until `applied` was called.
        """
        if self._socket is None or self._page is not None:
            return self._page
        try:
            text = await self._socket.receive(seconds, bell)
        except CallError:
            await self.close()
            return None
        if text is None:
            return None
        try:
            self._page = answers.page(facts_of(text.encode()), self._since)
        except ValueError:
            raise self._transport.not_semel() from None
        return self._page

    async def applied(self, page: answers.ReplicaPage) -> None:
        """Record that a page is in the file: the next one starts at its end."""
        self._since, self._page = page.cursor, None
        if page.has_more and self._socket is not None:
            try:
                await self._ask(page.cursor)
            except CallError:
                await self.close()

    async def close(self) -> None:
        """Close the WebSocket and set the time of the next attempt."""
        stack, self._stack, self._socket, self._page = self._stack, None, None, None
        if stack is not None:
            self._put_off()
            await stack.aclose()

    async def _ask(self, since: int) -> None:
        assert self._socket is not None
        own = self._replica.progress.own_after
        more = "" if own is None else f',"ownAfter":"{own}"'
        self._since = since
        await self._socket.send(f'{{"clientId":{self._client},"since":"{since}","limit":{PAGE_ENTRIES}{more}}}')

    def _put_off(self) -> None:
        """Reconnect at once after a long connection, else with exponential backoff and jitter."""
        self._vain = 0 if self._now() - self._began >= STEADY_SECONDS else self._vain + 1
        pause = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(self._vain - 1, 16)) if self._vain else 0.0
        self._due = self._now() + pause * (0.5 + self._chance() / 2)
