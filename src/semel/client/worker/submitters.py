"""The clients that job functions submit with: a blocking one a process, an asynchronous one an event loop.

They are made on first use from the worker's own settings. A forked process makes its own, because two processes must
not share a connection.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

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
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncClient] = WeakKeyDictionary()

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
        """The calls in the running event loop."""
        if self.override is not None:
            return self.override
        if self._pid != os.getpid():
            self._forget()
        loop = asyncio.get_running_loop()
        if loop not in self._by_loop:
            self._by_loop[loop] = AsyncClient(**self._settings())
        return self._by_loop[loop].jobs

    async def aclose(self) -> None:
        """Close the client of the running event loop, and the blocking one."""
        client = self._by_loop.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()
        self.close()

    def close(self) -> None:
        """Close the blocking client."""
        if self._blocking is not None and self._pid == os.getpid():
            self._blocking.close()
        self._blocking = None
