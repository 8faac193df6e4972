"""The clients that job functions submit with: a blocking one, and an asynchronous one for all event loops.

They are made on first use from the worker's own settings. A forked process makes its own, because two processes must
not share a connection.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from semel.client.client import AsyncClient, Client
from semel.client.jobs.calls import AsyncJobs

Settings = Callable[[], dict[str, Any]]
"""The arguments of the clients, read when one is made."""


class Submitters:
    """The jobs of a server, from synchronous and from asyncio code."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.override: AsyncJobs | None = None
        """Jobs of a test, used instead of a server."""
        self._forget()

    def _forget(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._blocking: Client | None = None
        self._asynchronous: AsyncClient | None = None

    def blocking(self) -> AsyncJobs:
        """The calls over the blocking network: `finished` runs them."""
        if self.override is not None:
            return self.override
        if self._pid != os.getpid():
            self._forget()
        with self._lock:
            if self._blocking is None:
                self._blocking = Client(**self._settings())
            return self._blocking.jobs.calls

    def asynchronous(self) -> AsyncJobs:
        """The calls from asyncio code."""
        if self.override is not None:
            return self.override
        if self._pid != os.getpid():
            self._forget()
        with self._lock:
            if self._asynchronous is None:
                self._asynchronous = AsyncClient(**self._settings())
            return self._asynchronous.jobs

    async def aclose(self) -> None:
        """Close both clients."""
        client, self._asynchronous = self._asynchronous, None
        if client is not None and self._pid == os.getpid():
            await client.close()
        self.close()

    def close(self) -> None:
        """Close the blocking client."""
        if self._blocking is not None and self._pid == os.getpid():
            self._blocking.close()
        self._blocking = None
