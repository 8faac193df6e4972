"""The clients of the library under the same load: `AsyncClient`, and `Client` in a thread, with their own retries."""

from __future__ import annotations

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor

from semel import AsyncClient
from semel import Client as BlockingClient
from semel.client.errors import CallError
from semel.client.retry import ENDLESS
from semel.client.streams.values import AppendResult
from tests.harness.crash.run import Stop
from tests.streams.crash.clients import Client, Operation

JSON = "application/json"


class LibraryClient(Client):
    """One writer on `AsyncClient`: the library numbers a producer's appends and repeats what has no answer."""

    def __init__(self, url: str, stream: str, name: str, *, keyed: bool, seed: int) -> None:
        self._stream = stream
        self._name = name
        self._keyed = keyed
        self._chance = random.Random(seed)
        self._current: Operation | None = None
        self.operations: list[Operation] = []
        self._open(url)

    def _open(self, url: str) -> None:
        self._client = AsyncClient(url, patience=ENDLESS, on_retry=self._count, connections=1)
        self._producer = self._client.streams.producer(self._stream, self._name, epoch=0, content_type=JSON)

    async def work(self, stop: Stop) -> None:
        """As any client; then close the connections."""
        try:
            await super().work(stop)
        finally:
            await self._client.close()

    async def carry_out(self, operation: Operation) -> None:
        """One call; the library repeats it until it is answered."""
        self._current = operation
        operation.attempts += 1
        stored = await self._append(operation)
        operation.answers.append((204, stored.offset))

    async def _append(self, operation: Operation) -> AppendResult:
        if not self._keyed:
            return await self._producer.append(operation.body)
        key = operation.headers["Idempotency-Key"]
        return await self._client.streams.append(self._stream, operation.body, key=key, content_type=JSON)

    def _count(self, error: CallError) -> None:
        assert self._current is not None
        self._current.attempts += 1


class ThreadedClient(LibraryClient):
    """One writer on the blocking `Client`, in a thread of its own for each call."""

    def _open(self, url: str) -> None:
        super()._open(url)
        self._thread = ThreadPoolExecutor(1)  # of its own: those of the loop start and kill servers
        self._blocking = BlockingClient(url, patience=ENDLESS, on_retry=self._count, connections=1)
        self._numbered = self._blocking.streams.producer(self._stream, self._name, epoch=0, content_type=JSON)

    async def work(self, stop: Stop) -> None:
        """As any client; then close the connections."""
        try:
            await super().work(stop)
        finally:
            self._blocking.close()
            self._thread.shutdown()

    async def _append(self, operation: Operation) -> AppendResult:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._append_here, operation)

    def _append_here(self, operation: Operation) -> AppendResult:
        if not self._keyed:
            return self._numbered.append(operation.body)
        key = operation.headers["Idempotency-Key"]
        return self._blocking.streams.append(self._stream, operation.body, key=key, content_type=JSON)
