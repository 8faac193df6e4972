"""Both kinds of replicas under one face: the tests are written once, and run with the asynchronous and the blocking."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from semel.client import AsyncClient, Client, Patience
from semel.client.retry import OnRetry

CLIENT_OPTIONS = ("token", "patience", "on_retry", "tls", "tenant", "network")


class Opened:
    """A replica and the client that opened it; what is not here is what the replica has."""

    def __init__(self, client: Any, replica: Any) -> None:
        self._client = client
        self._replica = replica

    def __getattr__(self, name: str) -> Any:
        return getattr(self._replica, name)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close both."""
        raise NotImplementedError

    async def push(self) -> Any:
        """As that of the replica."""
        return await self.called("push")

    async def pull(self) -> Any:
        """As that of the replica."""
        return await self.called("pull")

    async def sync(self) -> Any:
        """As that of the replica."""
        return await self.called("sync")

    async def called(self, name: str) -> Any:
        """The result of a call to the server."""
        raise NotImplementedError

    def use_token(self, token: str) -> None:
        """As that of the client."""
        self._client.use_token(token)

    @property
    def calls(self) -> Any:
        """The replica as coroutines, whichever it is."""
        return self._replica


class OpenedAsync(Opened):
    """An asynchronous one."""

    async def called(self, name: str) -> Any:
        """Awaited in the loop."""
        return await getattr(self._replica, name)()

    async def close(self) -> None:
        """Close both."""
        await self._replica.close()
        await self._client.close()


class ThreadIterator:
    """A blocking iterator, asked in a thread."""

    def __init__(self, items: Any) -> None:
        self._items = items

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        found = await asyncio.to_thread(next, self._items, self)
        if found is self:
            raise StopAsyncIteration
        return found

    async def aclose(self) -> None:
        """End it."""
        await asyncio.to_thread(self._items.close)


class OpenedBlocking(Opened):
    """A blocking one, whose calls run in threads."""

    async def called(self, name: str) -> Any:
        """Called in a thread."""
        return await asyncio.to_thread(getattr(self._replica, name))

    async def close(self) -> None:
        """Close both."""
        await asyncio.to_thread(self._replica.close)
        self._client.close()

    def __getattr__(self, name: str) -> Any:
        if name in ("follow", "watch", "lost_writes"):
            return lambda *args, **kwargs: ThreadIterator(getattr(self._replica, name)(*args, **kwargs))
        return super().__getattr__(name)

    @property
    def calls(self) -> Any:
        """The replica as coroutines, whichever it is."""
        return self._replica._calls


Kind = Callable[..., Opened]


def open_async(path: str | Path, *, url: str, **options: Any) -> Opened:
    """An asynchronous replica, with a client of its own."""
    own = {name: options.pop(name) for name in CLIENT_OPTIONS if name in options}
    client = AsyncClient(url, **own)
    return OpenedAsync(client, client.deltas(path, **options))


def open_blocking(path: str | Path, *, url: str, **options: Any) -> Opened:
    """A blocking replica, with a client of its own."""
    own = {name: options.pop(name) for name in CLIENT_OPTIONS if name in options}
    client = Client(url, **own)
    return OpenedBlocking(client, client.deltas(path, **options))


class Chosen:
    """The kind that the running test is about; the fixture `each_kind` sets it."""

    kind: Kind = staticmethod(open_async)


def open_replica(
    path: str | Path,
    *,
    url: str,
    gateway: str | None = None,
    token: str | None = None,
    patience: Patience | None = None,
    on_retry: OnRetry = lambda error: None,
    **options: Any,
) -> Opened:
    """A replica of the chosen kind."""
    return Chosen.kind(path, url=url, gateway=gateway, token=token, patience=patience, on_retry=on_retry, **options)
