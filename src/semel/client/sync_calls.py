"""Synchronous versions of the asynchronous calls.

A surface's calls are written once, as coroutines over a network. `blocking` makes a plain method of such a coroutine
method: it runs it to its end in the caller's thread, over the blocking network.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from semel.client.transport.network import finished

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
C = TypeVar("C")
C_co = TypeVar("C_co", covariant=True)


class BlockingCalls(Generic[C_co]):
    """The calls of a surface that block; `calls` are the same as coroutines, or of a subclass that has more."""

    def __init__(self, calls: C_co) -> None:
        self._calls = calls

    @property
    def calls(self) -> C_co:
        """The same calls as coroutines over the blocking network: `finished` runs them."""
        return self._calls


def blocking(
    method: Callable[Concatenate[C, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[BlockingCalls[C], P], R]:
    """The synchronous version of a coroutine method."""

    @functools.wraps(method)
    def call(self: BlockingCalls[C], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return finished(method(self._calls, *args, **kwargs))

    return call


class CloseableIterator(Protocol[T_co]):
    """An asynchronous iterator that can be closed."""

    def __aiter__(self) -> AsyncIterator[T_co]: ...

    async def __anext__(self) -> T_co: ...

    async def aclose(self) -> None: ...


class BlockingIterator(Generic[T]):
    """The synchronous version of an asynchronous iterator: `for item in ...`. `close` ends its connection."""

    def __init__(self, items: CloseableIterator[T]) -> None:
        self._items = items

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        try:
            return finished(self._items.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self) -> None:
        """End it; its connection is closed."""
        finished(self._items.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def blocking_iterator(
    method: Callable[Concatenate[C, P], CloseableIterator[T]],
) -> Callable[Concatenate[BlockingCalls[C], P], BlockingIterator[T]]:
    """The synchronous version of a method that returns an asynchronous iterator."""

    @functools.wraps(method)
    def call(self: BlockingCalls[C], /, *args: P.args, **kwargs: P.kwargs) -> BlockingIterator[T]:
        return BlockingIterator(method(self._calls, *args, **kwargs))

    return call
