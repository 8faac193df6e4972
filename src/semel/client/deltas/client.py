"""`DeltasClient`: rows in a local file, changed offline and synced with other replicas.

Promise: a write that has returned is on disk together with its delta. The delta is sent until the server has
acknowledged or permanently refused it, despite lost answers and crashes of this process or the server, and it takes
effect once. Changes of other replicas are all received. Replicas that have pushed and pulled everything are equal.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

from semel.client.deltas import answers
from semel.client.deltas.drafts import checked_client, checked_gateway, client_of_token
from semel.client.deltas.file import LocalFile
from semel.client.deltas.live_connection import LiveConnection
from semel.client.deltas.pull import CheckpointReader, Puller
from semel.client.deltas.push import OnDead, Pusher
from semel.client.deltas.replica import LocalReplica
from semel.client.deltas.state import FileClock
from semel.client.deltas.values import Change, DeadLetter, PendingDelta, Pulled, Pushed, Synced
from semel.client.errors import CallError, ClockSkewError, CursorExpiredError, SemelError
from semel.client.retry import ClientCaller, OnRetry, Patience
from semel.client.transport import Transport, find_access
from semel.kernel.hashes import json_text

MAX_ANSWER_BYTES = 32 * 1024 * 1024
FOLLOW_SECONDS = 2.0
CONNECTIONS = 2
"""One connection for calls, and one for the WebSocket."""
MAX_BEGINNINGS = 3
"""Maximum checkpoints that one pull loads; after that, a refused cursor is raised as an error."""

D = TypeVar("D", str, str | None)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class DeltasClient:
    """One replica of one gateway: `async with DeltasClient("app.db", gateway="shop") as db:`."""

    def __init__(
        self,
        path: str | Path,
        *,
        gateway: str,
        url: str | None = None,
        token: str | None = None,
        client_id: str | None = None,
        moved: bool = False,
        patience: Patience | None = None,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        on_dead: OnDead = lambda letter: None,
        on_retry: OnRetry = lambda error: None,
        wall_ms: Callable[[], int] = _wall_ms,
    ) -> None:
        """Open the file, or create it. Defaults come from SEMEL_URL and SEMEL_TOKEN. `client_id` is the unique name of
        the replica. Without it, an existing file keeps its name; a new one gets the `sub` of the token, the only name
        that the server accepts with that token, or a random name. `moved` confirms that the server has a new address.
        `on_dead` is called with each dead letter, `on_retry` with each error that is retried. `wall_ms` is the system
        clock.
        """
        access = find_access(url, token, "", os.environ)
        self.gateway = checked_gateway(gateway)
        fresh = client_of_token(access.token) or f"replica-{secrets.token_hex(16)}"
        wanted = None if client_id is None else checked_client(client_id)
        self._file = LocalFile(Path(path))
        try:
            self.client_id = self._file.bind(self.gateway, access.url, wanted, fresh, moved=moved).client
        except BaseException:
            self._file.close()
            raise
        self._replica = LocalReplica(self._file, FileClock(self._file, wall_ms), self.client_id)
        self._transport = transport = Transport(access, connections=CONNECTIONS)
        caller = ClientCaller(transport, patience or Patience(), max_answer_bytes, on_retry, answers.refused)
        path, client = f"/v1/sync/{quote(self.gateway, safe='')}", json_text(self.client_id)
        self._pusher = Pusher(self._replica, caller, f"{path}/push", client, on_dead, wall_ms)
        self._puller = Puller(self._replica, caller, f"{path}/pull", self.client_id)
        self._checkpoints = CheckpointReader(
            self._replica, caller, transport, f"{path}/checkpoint", self.client_id, max_answer_bytes
        )
        self._connect = partial(LiveConnection, self._replica, transport, f"{path}/ws", client, max_answer_bytes)
        self._on_retry = on_retry
        self._turn = asyncio.Lock()
        self._wakers: set[Callable[[], None]] = set()
        self._lines: set[LiveConnection] = set()
        self._closed = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection and the file; followers end. Queued changes stay in the file."""
        self._closed.set()
        for line in tuple(self._lines):
            await line.close()
        self._wake()
        await self._transport.end()
        self._file.close()

    def get(self, table: str, row_id: str) -> dict[str, Any] | None:
        """The columns of a row, without those that are None; None if the row does not exist."""
        return self._replica.get(table, row_id)

    def rows(self, table: str) -> dict[str, dict[str, Any]]:
        """All rows of a table, by their ids."""
        return self._replica.rows(table)

    def tables(self) -> list[str]:
        """The names of the tables that have rows."""
        return self._replica.tables()

    def insert(self, table: str, row_id: str, columns: Mapping[str, Any]) -> str:
        """Insert a row and return the id of its delta. Raises `RowExistsError` if the row exists."""
        return self._wrote(self._replica.insert(table, row_id, columns))

    def update(self, table: str, row_id: str, columns: Mapping[str, Any]) -> str | None:
        """Change some columns of a row; None clears one. Returns the delta's id, or None if nothing changes.

        Raises `RowMissingError` if the row does not exist.
        """
        return self._wrote(self._replica.update(table, row_id, columns))

    def put(self, table: str, row_id: str, columns: Mapping[str, Any]) -> str | None:
        """Insert the row, or update it if it exists."""
        return self._wrote(self._replica.put(table, row_id, columns))

    def delete(self, table: str, row_id: str) -> str | None:
        """Delete a row. Returns the delta's id, or None if the row does not exist."""
        return self._wrote(self._replica.delete(table, row_id))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run several writes as one transaction, on disk when the block ends. Do not await inside it."""
        with self._file.transaction():
            yield
        self._wake()

    def pending(self) -> list[PendingDelta]:
        """Own changes that the server has not acknowledged, oldest first."""
        return self._replica.outbox.pending()

    def dead(self) -> list[DeadLetter]:
        """Own changes that the server has permanently refused, oldest first."""
        return self._replica.outbox.dead()

    def retry_dead(self, delta_id: str) -> None:
        """Put a refused change back into the queue with its old timestamp. Raises KeyError for an unknown id."""
        self._replica.exhume(delta_id, again=True)
        self._wake()

    def discard_dead(self, delta_id: str) -> None:
        """Delete a refused change. Raises KeyError for an unknown id."""
        self._replica.exhume(delta_id, again=False)

    def restamp(self) -> int:
        """Give new timestamps to changes that were refused with `ClockSkewError`. Returns how many.

        Call it after the clock was corrected. The changes keep their order.
        """
        return self._replica.restamp()

    def start_over(self) -> None:
        """Drop the server's state; the next pull fetches everything again. Own changes stay."""
        self._replica.start_over()

    def use_token(self, token: str) -> None:
        """Use another token from the next call on, for example because the old one expires."""
        self._transport.authorize(find_access(self._transport.url, token, "", {}).token)

    async def push(self) -> Pushed:
        """Send all unacknowledged changes, oldest first.

        After `ClockSkewError`, `AccessError`, `BusyError` or `NoAnswerError` the rest stays queued.
        """
        async with self._turn:
            return await self._pusher.push([])

    async def pull(self) -> Pulled:
        """Fetch all changes of other replicas.

        A new replica, and one whose cursor the server no longer keeps, loads the checkpoint.
        """
        pulled = Pulled()
        async for some, _ in self._pages(is_told=False):
            pulled = pulled.and_also(some)
        return pulled

    async def sync(self) -> Synced:
        """Push, then pull. `ClockSkewError` is raised after the pull.

        A new replica loads the checkpoint before it pushes, so that its own writes need not be in it.
        """
        begun = await self._begin(is_told=False)
        try:
            pushed = await self.push()
        except ClockSkewError:
            await self.pull()
            raise
        return Synced(pushed, begun.and_also(await self.pull()))

    async def follow(self, *, every: float = FOLLOW_SECONDS, live: bool = True) -> AsyncIterator[Change]:
        """Stay in sync, and yield each row that other replicas have changed. Own writes are sent at once.

        The server sends changes over a WebSocket. Without one (the server is unavailable, a proxy blocks it, or `live`
        is False) the client polls every `every` seconds and reconnects with backoff. Temporary errors are retried;
        others end the iterator, and so does `close`. A change is in the file before it is yielded, and is yielded once:
        after a restart, read the rows.
        """
        stirred, loop = asyncio.Event(), asyncio.get_running_loop()

        def waker() -> None:
            loop.call_soon_threadsafe(stirred.set)  # from any thread that writes

        line = self._connect(stirred)
        self._wakers.add(waker)
        self._lines.add(line)
        try:
            while not self._closed.is_set():
                stirred.clear()
                try:
                    async for change in self._round(line):
                        yield change
                    if live and not line.is_open and not self._closed.is_set():
                        await line.open()
                except CallError as error:
                    if not error.may_pass:
                        raise
                    self._on_retry(error)
                    await asyncio.sleep(max(every, error.retry_after))
                except SemelError:
                    if self._closed.is_set():
                        return
                    raise
                else:
                    await _set_within(stirred, None if line.is_open else every)
        finally:
            self._wakers.discard(waker)
            self._lines.discard(line)
            await line.close()

    async def _round(self, line: LiveConnection) -> AsyncIterator[Change]:
        """Push queued changes, and apply or fetch new pages. Returns the rows that other replicas have changed."""
        await self._begin(is_told=True)
        while later := self._replica.told_later():
            for change in later:
                yield change
        changes: list[Change] = []
        async with self._turn:
            await self._pusher.push(changes)
        for change in changes:
            yield change
        if not line.is_open:
            async for change in self._asked_for():
                yield change
        async for change in self._brought(line):
            yield change

    async def _asked_for(self) -> AsyncIterator[Change]:
        """Changes of a pull."""
        async for _, some in self._pages(is_told=True):
            for change in some:
                yield change

    async def _brought(self, line: LiveConnection) -> AsyncIterator[Change]:
        """Changes of the pages that the WebSocket has received."""
        while (page := line.next()) is not None:
            async with self._turn:
                applied = self._replica.apply(page)
            if applied is None:  # it must load a checkpoint
                await line.close()
                break
            await line.applied(page)
            for change in applied.changes:
                yield change

    async def _pages(self, *, is_told: bool) -> AsyncIterator[tuple[Pulled, Sequence[Change]]]:
        """Apply checkpoints and pages to the end. Yields the counts and changes of each.

        Changes of a checkpoint, which may be many, are yielded only with `is_told`.
        """
        beginnings, is_begun, has_more = 0, False, True
        while has_more:
            if not is_begun:
                beginnings, is_begun = beginnings + 1, True
                yield await self._begin(is_told=is_told), ()
                while is_told and (later := self._replica.told_later()):
                    yield Pulled(), later
            async with self._turn:
                page = await self._fetch(is_last=beginnings >= MAX_BEGINNINGS)
                applied = None if page is None else self._replica.apply(page)
            if page is None or applied is None:
                is_begun = False
            else:
                has_more = page.has_more
                yield Pulled(len(page.entries), len(applied.changes), applied.ahead_ms), applied.changes

    async def _begin(self, *, is_told: bool) -> Pulled:
        """Load the checkpoint if the replica is new or must be reloaded."""
        async with self._turn:
            if self._replica.progress.cursor:
                return Pulled()
            return Pulled(*await self._checkpoints.take(is_told=is_told))

    async def _fetch(self, *, is_last: bool) -> answers.ReplicaPage | None:
        """The next page; None if the server no longer keeps it, which is raised after the last attempt."""
        try:
            return await self._puller.fetch()
        except CursorExpiredError:
            if is_last:
                raise
            self._replica.lose_place()
            return None

    def _wrote(self, delta_id: D) -> D:
        if delta_id is not None:
            self._wake()
        return delta_id

    def _wake(self) -> None:
        """Wake the followers: a change is queued."""
        for waker in tuple(self._wakers):
            waker()


async def _set_within(event: asyncio.Event, seconds: float | None) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
