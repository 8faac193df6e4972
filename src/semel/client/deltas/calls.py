"""Replicas: rows in a local file, changed offline and synced with other replicas.

Promise: a write that has returned is on disk together with its delta. The delta is sent until the server has
acknowledged or permanently refused it, despite lost answers and crashes of this process or the server, and it takes
effect once. Changes of other replicas are all received. Replicas that have pushed and pulled everything are equal.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from weakref import WeakSet

from semel.client.deltas.drafts import checked_client, checked_gateway, client_of_token
from semel.client.deltas.exchange import PageReader, ReplicaExchange
from semel.client.deltas.file import LocalFile
from semel.client.deltas.follow import FOLLOW_SECONDS, ReplicaFollower
from semel.client.deltas.iterators import ReplicaIterator
from semel.client.deltas.local_calls import ReplicaRows
from semel.client.deltas.observers import ReplicaBells
from semel.client.deltas.push import OnDead
from semel.client.deltas.replica import LocalReplica
from semel.client.deltas.state import FileClock
from semel.client.deltas.values import DeadLetter, Pulled, Pushed, Synced
from semel.client.deltas.watch import LostWriteWatch, RowWatch, Where
from semel.client.errors import CallError, ClockSkewError, LocalFileError
from semel.client.retry import ClientCaller
from semel.client.sync_calls import BlockingCalls, blocking, blocking_iterator
from semel.client.transport.network import finished

MAX_ANSWER_BYTES = 32 * 1024 * 1024


def wall_clock_ms() -> int:
    """Milliseconds since 1970 by the clock of this machine."""
    return time.time_ns() // 1_000_000


def ignore_letter(letter: DeadLetter) -> None:
    """Dead letters are not reported."""


class AsyncReplica(ReplicaRows):
    """One replica of one gateway: `async with client.deltas("app.db", "shop") as db:`. One event loop syncs it."""

    def __init__(
        self,
        caller: ClientCaller,
        path: str | Path,
        gateway: str,
        *,
        token: str | None = None,
        client_id: str | None = None,
        moved: bool = False,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        on_dead: OnDead = ignore_letter,
        wall_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        """Open the file, or create it; `AsyncClient.deltas` describes the arguments."""
        checked_gateway(gateway)
        fresh = client_of_token(token) or f"replica-{secrets.token_hex(16)}"
        wanted = None if client_id is None else checked_client(client_id)
        self._file = LocalFile(Path(path))
        try:
            name = self._file.bind(gateway, caller.transport.url, wanted, fresh, moved=moved).client
        except BaseException:
            self._file.close()
            raise
        local = LocalReplica(self._file, FileClock(self._file, wall_ms), name)
        super().__init__(local, ReplicaBells(), gateway, name)
        self._iterators: WeakSet[ReplicaIterator[Any]] = WeakSet()
        self._on_retry = caller.on_retry
        own = ClientCaller(caller.transport, caller.patience, self._retried)
        self._exchange = ReplicaExchange(local, own, gateway, name, max_answer_bytes, on_dead, wall_ms)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the file; followers end. Queued changes stay in the file. The client stays open."""
        self._bells.close()
        self._local.observers.bells.close()
        for iterator in tuple(self._iterators):
            if not iterator.is_busy:  # a busy one was woken, and ends by itself
                await iterator.aclose()
        self._file.close()

    async def push(self) -> Pushed:
        """Send all unacknowledged changes, oldest first.

        After `ClockSkewError`, `AccessError`, `BusyError` or `NoAnswerError` the rest stays queued.
        """
        return await self._exchange.push([])

    async def pull(self) -> Pulled:
        """Fetch all changes of other replicas.

        A new replica, and one whose cursor the server no longer keeps, loads the checkpoint.
        """
        pulled, reader = Pulled(), PageReader(self._exchange, is_told=False)
        while reader.has_more:
            pulled = pulled.and_also((await reader.next()).counts)
        return pulled

    async def sync(self) -> Synced:
        """Push, then pull. `ClockSkewError` is raised after the pull.

        A new replica loads the checkpoint before it pushes, so that its own writes need not be in it.
        """
        begun = await self._exchange.begin(is_told=False)
        try:
            pushed = await self.push()
        except ClockSkewError:
            await self.pull()
            raise
        return Synced(pushed, begun.and_also(await self.pull()))

    def follow(self, *, every: float = FOLLOW_SECONDS, live: bool = True) -> ReplicaFollower:
        """Stay in sync, and iterate over each row that other replicas have changed. Own writes are sent at once.

        The server sends changes over a WebSocket. Without one (the server is unavailable, a proxy blocks it, or `live`
        is False) the client polls every `every` seconds and reconnects with backoff. Temporary errors are retried;
        others end the iterator, and so does `close`. A change is in the file before it is handed over, and is handed
        over once: after a restart, read the rows.
        """
        follower = ReplicaFollower(self._exchange, every, self._on_retry, self._bells, live=live)
        self._iterators.add(follower)
        return follower

    def watch(self, table: str, where: Where = None, *, follow: bool = False) -> RowWatch:
        """Iterate over the result of a query as it changes: first all matching rows, then what was added, changed and
        removed, by own writes and by changes of other replicas.

        `where` is a function of a row's columns, or a mapping of values that columns must have. Changes while you are
        busy come as one change set. It hears of other replicas while `follow()` runs, or after `pull` and `sync`; with
        `follow` it stays in sync itself.
        """
        follower = None
        if follow:
            both = (self._bells, self._local.observers.bells)
            follower = ReplicaFollower(self._exchange, FOLLOW_SECONDS, self._on_retry, *both, live=True)
        watch = RowWatch(self._local, self._exchange.network, table, where, follower)
        self._iterators.add(watch)
        return watch

    def lost_writes(self) -> LostWriteWatch:
        """Iterate over own writes that lost to other replicas, oldest first, and wait for more.

        Each is kept in the file until the next one is asked for: after a crash none is missing, and the one that was
        being handled comes again. At most 10,000 are kept, the latest.
        """
        lost = LostWriteWatch(self._local, self._exchange.network)
        self._iterators.add(lost)
        return lost

    def _retried(self, error: CallError) -> None:
        if self._bells.is_closed:
            raise LocalFileError(f"{self._file.path} has been closed.")
        self._on_retry(error)


class Replica(ReplicaRows, BlockingCalls[AsyncReplica]):
    """One replica of one gateway, from synchronous code: `with client.deltas("app.db", "shop") as db:`.

    Calls may come from any thread; those to the server run one after another. An iterator is used by one thread.
    """

    def __init__(self, calls: AsyncReplica) -> None:
        BlockingCalls.__init__(self, calls)
        ReplicaRows.__init__(self, calls._local, calls._bells, calls.gateway, calls.client_id)

    push = blocking(AsyncReplica.push)
    pull = blocking(AsyncReplica.pull)
    sync = blocking(AsyncReplica.sync)
    follow = blocking_iterator(AsyncReplica.follow)
    watch = blocking_iterator(AsyncReplica.watch)
    lost_writes = blocking_iterator(AsyncReplica.lost_writes)
    close = blocking(AsyncReplica.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        finished(self._calls.close())
