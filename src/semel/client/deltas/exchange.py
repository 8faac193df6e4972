"""The calls of a replica to its server: pushes, pages and checkpoints, one at a time."""

from __future__ import annotations

from collections.abc import Callable, MutableSequence, Sequence
from types import TracebackType
from typing import NamedTuple
from urllib.parse import quote

from semel.client.deltas import answers
from semel.client.deltas.live_connection import LiveConnection
from semel.client.deltas.pull import CheckpointReader, Puller
from semel.client.deltas.push import OnDead, Pusher
from semel.client.deltas.replica import Applied, LocalReplica
from semel.client.deltas.values import Change, Pulled, Pushed
from semel.client.errors import CursorExpiredError
from semel.client.retry import ClientCaller
from semel.client.transport.network import Network, UseLimit
from semel.kernel.hashes import json_text

MAX_BEGINNINGS = 3
"""Maximum checkpoints that one pull loads; after that, a refused cursor is raised as an error."""


class ReplicaTurn:
    """A mutual exclusion of the calls of one replica: `async with turn:`."""

    def __init__(self, network: Network) -> None:
        self._limit: UseLimit = network.limit(1)

    async def __aenter__(self) -> None:
        await self._limit.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._limit.release()


class ReplicaExchange:
    """The calls of one replica."""

    def __init__(
        self,
        local: LocalReplica,
        caller: ClientCaller,
        gateway: str,
        client_id: str,
        max_answer_bytes: int,
        on_dead: OnDead,
        wall_ms: Callable[[], int],
    ) -> None:
        path, client = f"/v1/sync/{quote(gateway, safe='')}", json_text(client_id)
        self.local = local
        self.network = caller.transport.network
        self.puller = Puller(local, caller, f"{path}/pull", client_id, max_answer_bytes)
        self._transport = caller.transport
        self._turn = ReplicaTurn(self.network)
        self._pusher = Pusher(local, caller, f"{path}/push", client, on_dead, wall_ms, max_answer_bytes)
        self._checkpoints = CheckpointReader(local, caller, f"{path}/checkpoint", client_id, max_answer_bytes)
        self._socket = (f"{path}/ws", client, max_answer_bytes)

    def connection(self) -> LiveConnection:
        """A WebSocket for a follower, not opened yet."""
        return LiveConnection(self.local, self._transport, *self._socket)

    async def push(self, changes: MutableSequence[Change]) -> Pushed:
        """Send all unacknowledged changes. Rows in which other replicas won are added to `changes`."""
        async with self._turn:
            return await self._pusher.push(changes)

    async def begin(self, *, is_told: bool) -> Pulled:
        """Load the checkpoint if the replica is new or must be reloaded."""
        async with self._turn:
            if self.local.progress.cursor:
                return Pulled()
            return Pulled(*await self._checkpoints.take(is_told=is_told))

    async def apply(self, page: answers.ReplicaPage) -> Applied | None:
        """Apply a page; None if the replica must be reloaded."""
        async with self._turn:
            return self.local.apply(page)

    async def next_page(self, *, is_last: bool) -> tuple[answers.ReplicaPage, Applied] | None:
        """Fetch and apply a page. None if the server no longer keeps it, which is raised if `is_last`."""
        async with self._turn:
            try:
                page = await self.puller.fetch()
            except CursorExpiredError:
                if is_last:
                    raise
                self.local.lose_place()
                return None
            applied = self.local.apply(page)
            return None if applied is None else (page, applied)


class PulledPage(NamedTuple):
    """The effect of one step of a pull."""

    counts: Pulled = Pulled()
    changes: Sequence[Change] = ()


class PageReader:
    """One pull: checkpoints and pages, each in the file before the next is fetched, until `has_more` is False.

    With `is_told` the changes of a checkpoint are kept for `LocalReplica.told_later`, because they may be many.
    """

    def __init__(self, exchange: ReplicaExchange, *, is_told: bool) -> None:
        self._exchange = exchange
        self._is_told = is_told
        self._is_begun = False
        self._beginnings = 0
        self.has_more = True

    async def next(self) -> PulledPage:
        """Apply a checkpoint or a page."""
        if not self._is_begun:
            self._beginnings, self._is_begun = self._beginnings + 1, True
            return PulledPage(await self._exchange.begin(is_told=self._is_told))
        found = await self._exchange.next_page(is_last=self._beginnings >= MAX_BEGINNINGS)
        if found is None:
            self._is_begun = False
            return PulledPage()
        page, applied = found
        self.has_more = page.has_more
        return PulledPage(Pulled(len(page.entries), len(applied.changes), applied.ahead_ms), applied.changes)
