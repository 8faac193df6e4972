"""Following: stay in sync, and hand over each row that other replicas have changed.

A change is in the file before it is handed over, and is handed over once; a cancelled wait loses none. After a crash,
read the rows.
"""

from __future__ import annotations

from semel.client.deltas.exchange import PageReader, ReplicaExchange
from semel.client.deltas.iterators import LONG_SECONDS, ReplicaIterator
from semel.client.deltas.observers import ReplicaBells
from semel.client.deltas.values import Change
from semel.client.errors import CallError, SemelError
from semel.client.retry import OnRetry
from semel.client.transport.network import Bell

FOLLOW_SECONDS = 2.0


class ReplicaFollower(ReplicaIterator[Change]):
    """Iterator over the changes of other replicas: `async for change in db.follow()`."""

    def __init__(
        self, exchange: ReplicaExchange, every: float, on_retry: OnRetry, *bells: ReplicaBells, live: bool
    ) -> None:
        super().__init__(exchange.network, *bells)
        self._exchange = exchange
        self._every = every
        self._on_retry = on_retry
        self._is_live = live
        self._line = exchange.connection()
        self._reader: PageReader | None = PageReader(exchange, is_told=True)
        """The pull in progress; None when the replica has caught up."""

    async def aclose(self) -> None:
        """End it, and close its connection."""
        await super().aclose()
        await self._line.close()

    async def advance_silently(self) -> None:
        """Stay in sync by one step, without handing over the changes."""
        await self.advance()
        self._ready.clear()

    async def _failed(self, error: SemelError, bell: Bell) -> None:
        """Temporary errors are waited for, whatever is written meanwhile; others end the iterator."""
        if not isinstance(error, CallError) or not error.may_pass:
            await super()._failed(error, bell)
            return
        self._on_retry(error)
        until = self._network.now() + max(self._every, error.retry_after)
        while not self._is_closed and (left := until - self._network.now()) > 0:
            await self._woken(bell, left)

    async def _step(self, bell: Bell) -> None:
        """Load a checkpoint, push, pull a page or wait for one: until changes are ready, or once through."""
        await self._exchange.begin(is_told=True)
        self._ready.extend(self._exchange.local.told_later())
        if self._ready:
            return
        await self._exchange.push(self._ready)
        if self._line.is_open:
            await self._take_page(bell)
        elif self._reader is not None:
            self._ready.extend((await self._reader.next()).changes)
            self._reader = self._reader if self._reader.has_more else None
        else:
            if self._is_live:
                await self._line.open()
            if not self._line.is_open:
                await self._woken(bell, self._every)
                self._reader = PageReader(self._exchange, is_told=True)

    async def _take_page(self, bell: Bell) -> None:
        """Apply the next page of the WebSocket. After its end, or if the replica must be reloaded, pull."""
        page = await self._line.next(0.0 if self._ready else LONG_SECONDS, bell)
        if page is not None:
            applied = await self._exchange.apply(page)
            if applied is None:
                await self._line.close()
            else:
                self._ready.extend(applied.changes)
                await self._line.applied(page)
        if not self._line.is_open:
            self._reader = PageReader(self._exchange, is_told=True)
