"""What the iterators of a replica share: they wait by a bell, end with the replica, and lose nothing if a wait is
cancelled."""

from __future__ import annotations

from collections import deque
from typing import Generic, Self, TypeVar

from semel.client.deltas.observers import ReplicaBells
from semel.client.errors import SemelError
from semel.client.transport.network import Bell, Network

LONG_SECONDS = 3_600.0
"""How long one wait lasts at most; then it is repeated."""
T = TypeVar("T")


class ReplicaIterator(Generic[T]):
    """An iterator of one task or thread. It ends with `aclose`, with the replica, or when it is dropped."""

    def __init__(self, network: Network, *bells: ReplicaBells) -> None:
        self._network = network
        self._bells = bells
        self._bell: Bell | None = None
        self._ready: deque[T] = deque()
        self._has_ended = False
        self.is_busy = False
        """Whether an item is being waited for."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        self.is_busy = True
        try:
            while not self._ready:
                if self._has_ended or self._is_closed:
                    await self.aclose()
                    raise StopAsyncIteration
                await self.advance()
            return self._ready.popleft()
        finally:
            self.is_busy = False

    async def aclose(self) -> None:
        """End it."""
        self._has_ended = True
        self._free_bell()

    def __del__(self) -> None:
        self._free_bell()

    async def advance(self) -> None:
        """One step, after which items may be ready. An error that cannot pass ends the iterator."""
        if self._bell is None:
            self._bell = self._network.bell()
            for bells in self._bells:
                bells.add(self._bell)
        try:
            await self._step(self._bell)
        except SemelError as error:
            if self._is_closed:
                return
            await self._failed(error, self._bell)

    async def _step(self, bell: Bell) -> None:
        raise NotImplementedError

    async def _failed(self, error: SemelError, bell: Bell) -> None:
        await self.aclose()
        raise error

    @property
    def _is_closed(self) -> bool:
        return any(bells.is_closed for bells in self._bells)

    async def _woken(self, bell: Bell, seconds: float = LONG_SECONDS) -> None:
        """Wait until the bell rings, at most this long."""
        try:
            await bell.wait(seconds)
        except TimeoutError:
            return

    def _free_bell(self) -> None:
        bell, self._bell = self._bell, None
        if bell is not None:
            for bells in self._bells:
                bells.remove(bell)
            bell.close()
