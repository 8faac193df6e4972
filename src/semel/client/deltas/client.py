"""`DeltasClient`: rows in a file of one's own, changed offline and kept equal with everybody else's.

Promise: a write that has returned is on disk, with the delta that tells others of it, and is sent until the server has
acknowledged it or has refused it for good, over lost answers, crashes of this process and of the server; it takes
effect there once. What others did arrives in the order the server put it into, none left out. Replicas that have
pushed and pulled everything are equal.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

from semel.client.access import find_access
from semel.client.calling import Caller, OnRetry
from semel.client.deltas import answers
from semel.client.deltas.clock import FileClock
from semel.client.deltas.file import LocalFile
from semel.client.deltas.names import checked_client, checked_gateway, client_of_token
from semel.client.deltas.pulling import Puller
from semel.client.deltas.pushing import OnDead, Pusher
from semel.client.deltas.replica import Applied, Replica
from semel.client.deltas.values import Change, DeadLetter, PendingDelta, Pulled, Pushed, Synced
from semel.client.errors import CallError, ClockSkewError
from semel.client.patience import Patience
from semel.client.transport import Transport
from semel.kernel.delta_id import json_text

MAX_ANSWER_BYTES = 32 * 1024 * 1024
FOLLOW_SECONDS = 2.0

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
        """Open the file, or make it. What is not given comes from SEMEL_URL and SEMEL_TOKEN.

        `client_id` is the replica's name, and nobody else's. Without one the file keeps the name that it has; a new
        file is given the `sub` of the token, which is the only name that the server takes with it, or a random name.
        `moved` says that the server has another address than the file was made with. `on_dead` is told each change
        that is set aside, `on_retry` each error after which a call is tried again. `wall_ms` is the machine's clock.
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
        self._replica = Replica(self._file, FileClock(self._file, wall_ms), self.client_id)
        self._transport = Transport(access, connections=1)
        caller = Caller(self._transport, patience or Patience(), max_answer_bytes, on_retry, answers.refused)
        path, client = f"/v1/sync/{quote(self.gateway, safe='')}", json_text(self.client_id)
        self._pusher = Pusher(self._replica, caller, f"{path}/push", client, on_dead, wall_ms)
        self._puller = Puller(self._replica, caller, f"{path}/pull", self.client_id)
        self._on_retry = on_retry
        self._turn = asyncio.Lock()
        self._wakers: set[Callable[[], None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of the server and of the file. What is queued stays there."""
        await self._transport.close()
        self._file.close()

    def get(self, table: str, row_id: str) -> dict[str, Any] | None:
        """The columns of a row; None when there is no such row. A column that is None is not among them."""
        return self._replica.get(table, row_id)

    def rows(self, table: str) -> dict[str, dict[str, Any]]:
        """All rows of a table, by their ids."""
        return self._replica.rows(table)

    def tables(self) -> list[str]:
        """The names of the tables that have rows."""
        return self._replica.tables()

    def insert(self, table: str, row_id: str, columns: Mapping[str, Any]) -> str:
        """Make a row; the name of the delta that tells others of it. `RowExistsError` when there is one."""
        return self._wrote(self._replica.insert(table, row_id, columns))

    def update(self, table: str, row_id: str, columns: Mapping[str, Any]) -> str | None:
        """Change columns of a row and leave the others alone; None when nothing changes. None as a value clears.

        `RowMissingError` when there is no such row.
        """
        return self._wrote(self._replica.update(table, row_id, columns))

    def put(self, table: str, row_id: str, columns: Mapping[str, Any]) -> str | None:
        """Insert the row, or update it if it is there."""
        return self._wrote(self._replica.put(table, row_id, columns))

    def delete(self, table: str, row_id: str) -> str | None:
        """Take a row away; None when it was not there."""
        return self._wrote(self._replica.delete(table, row_id))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Several writes that are all on disk when the block ends, or none of them. Do not await within it."""
        with self._file.transaction():
            yield
        self._wake()

    def pending(self) -> list[PendingDelta]:
        """Own changes that the server has not acknowledged, oldest first."""
        return self._replica.outbox.pending()

    def dead(self) -> list[DeadLetter]:
        """Own changes that the server has refused for good, oldest first."""
        return self._replica.outbox.dead()

    def retry_dead(self, delta_id: str) -> None:
        """Put a refused change back into the queue, with its old date. KeyError if there is none of this name."""
        self._replica.exhume(delta_id, again=True)
        self._wake()

    def discard_dead(self, delta_id: str) -> None:
        """Forget a refused change. KeyError if there is none of this name."""
        self._replica.exhume(delta_id, again=False)

    def restamp(self) -> int:
        """Date changes again that were refused with `ClockSkewError`, now that the clock is right; how many.

        They count as made now, and in the order in which they were made.
        """
        return self._replica.restamp()

    def start_over(self) -> None:
        """Forget what the server has told, and pull everything again from the next pull on; own changes stay."""
        self._replica.start_over()

    def use_token(self, token: str) -> None:
        """Another token from the next call on: the old one has ended, or will soon."""
        self._transport.authorize(find_access(self._transport.url, token, "", {}).token)

    async def push(self) -> Pushed:
        """Send all own changes that are not acknowledged, oldest first.

        `ClockSkewError`, `AccessError`, `BusyError` and `NoAnswerError` leave the rest where it is.
        """
        async with self._turn:
            return await self._pusher.push()

    async def pull(self) -> Pulled:
        """Fetch what others have done, to the end."""
        entries = changed = ahead = 0
        async for told, page in self._pages():
            entries, changed, ahead = entries + told, changed + len(page.changes), max(ahead, page.ahead_ms)
        return Pulled(entries, changed, ahead)

    async def sync(self) -> Synced:
        """Push, then pull. When the clock is wrong, what can be pulled is pulled before that is raised."""
        try:
            pushed = await self.push()
        except ClockSkewError:
            await self.pull()
            raise
        return Synced(pushed, await self.pull())

    async def follow(self, *, every: float = FOLLOW_SECONDS) -> AsyncIterator[Change]:
        """Stay in sync, and tell of each row that others have changed. Own writes are sent at once.

        It looks every so many seconds. While the server is away or has no room it keeps on trying; other errors end it.
        A change is in the file before it is told, and is told once: after a restart, read the rows.
        """
        written, loop = asyncio.Event(), asyncio.get_running_loop()

        def waker() -> None:
            loop.call_soon_threadsafe(written.set)  # from whatever thread writes

        self._wakers.add(waker)
        try:
            while True:
                written.clear()
                try:
                    await self.push()
                    async for _, page in self._pages():
                        for change in page.changes:
                            yield change
                except CallError as error:
                    if not error.may_pass:
                        raise
                    self._on_retry(error)
                    await asyncio.sleep(max(every, error.retry_after))
                else:
                    await _set_within(written, every)
        finally:
            self._wakers.discard(waker)

    async def _pages(self) -> AsyncIterator[tuple[int, Applied]]:
        """Pages as they are written down, to the end: how many entries, and what they did."""
        has_more = True
        while has_more:
            async with self._turn:
                page = await self._puller.fetch()
                applied = self._replica.apply(page)
            has_more = page.has_more or applied is None
            if applied is not None:
                yield len(page.entries), applied

    def _wrote(self, delta_id: D) -> D:
        if delta_id is not None:
            self._wake()
        return delta_id

    def _wake(self) -> None:
        """There is something to send."""
        for waker in tuple(self._wakers):
            waker()


async def _set_within(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
