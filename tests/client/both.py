"""One suite for both clients: the calls of `AsyncClient`, over the network of asyncio or the blocking one.

`Client` runs the same coroutines over the blocking network. Here its public methods are called, behind coroutines, so
that a test is written once.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from semel.client import AsyncClient, Client
from semel.client.access import TlsFiles
from semel.client.transport.asyncio_network import AsyncioNetwork
from semel.client.transport.network import Network
from semel.client.transport.socket_network import BlockingNetwork

BOTH = pytest.mark.parametrize("kind", ["async", "blocking"])
LOOPS = ("async", "uvloop", "blocking")
EACH_LOOP = pytest.mark.parametrize("kind", LOOPS)
"""For tests of connections, which belong to a loop. The calls above them know none: one loop is enough for their tests.

A test whose parameters have `uvloop` among them runs on it: see `conftest`."""


def network_of(kind: str) -> Network:
    """The sockets of a client."""
    return AsyncioNetwork(TlsFiles().context) if kind != "blocking" else BlockingNetwork(TlsFiles().context)


class Awaited:
    """A blocking client, or a part of it, whose methods are coroutines; each runs in a thread, as an executor would."""

    def __init__(self, part: Any) -> None:
        self._part = part

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._part, name)
        if not callable(found):
            return Awaited(found) if hasattr(found, "_calls") else found
        if name in _MAKERS:
            return lambda *args, **kwargs: Awaited(found(*args, **kwargs))
        if name in _ITERATORS:
            return lambda *args, **kwargs: _Iterated(found(*args, **kwargs))
        return lambda *args, **kwargs: asyncio.to_thread(found, *args, **kwargs)

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._part.close)


_MAKERS = frozenset({"producer", "place", "with_options", "writer"})
_ITERATORS = frozenset(
    {
        "clients",
        "gateways",
        "log",
        "follow",
        "pages",
        "tail",
        "organizations",
        "vaults",
        "entities",
        "relationships",
        "blocks",
        "walk",
        "walk_dead",
        "walk_members",
        "walk_partitions",
        "watch",
        "notices",
        "write_many",
    }
)


class _Iterated(Awaited):
    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        found = await asyncio.to_thread(next, self._part, _END)
        if found is _END:
            raise StopAsyncIteration
        return found

    async def aclose(self) -> None:
        await asyncio.to_thread(self._part.close)


_END = object()


def client_of(kind: str, url: str | None = None, **options: Any) -> Any:
    """An `AsyncClient`, or a `Client` behind coroutines."""
    if kind == "blocking":
        return Awaited(Client(url, **options))
    return AsyncClient(url, **options)


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a test's coroutine."""
    assert inspect.iscoroutinefunction(main)
    asyncio.run(main())
