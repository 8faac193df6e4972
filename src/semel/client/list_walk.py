"""Iterator over a list of the server that is fetched page by page: each item once and in order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, Protocol, Self, TypeVar

from semel.client.errors import BadAnswerError

T = TypeVar("T")


class AnyListPage(Protocol):
    """A page of a list."""

    @property
    def next_after(self) -> Any:
        """Where the next page begins; None at the end."""


P = TypeVar("P", bound=AnyListPage)


class ListWalk(Generic[T]):
    """Iterator over all items: `async for job in client.jobs.walk()`.

    `fetch` gets the page after a place, `items` are its items, and `after` is the place of the first page.
    """

    def __init__(self, fetch: Callable[[Any], Awaitable[P]], items: Callable[[P], Sequence[T]], after: Any) -> None:
        self._fetch: Callable[[Any], Awaitable[Any]] = fetch
        self._items: Callable[[Any], Sequence[T]] = items
        self._after = after
        self._waiting: list[T] = []
        self._is_last = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        while not self._waiting:
            if self._is_last:
                raise StopAsyncIteration
            page = await self._fetch(self._after)
            if page.next_after is not None and page.next_after == self._after:
                raise BadAnswerError("The server's list does not end: a page leads to itself.")
            self._waiting = list(reversed(self._items(page)))
            self._is_last = page.next_after is None
            self._after = page.next_after
        return self._waiting.pop()

    async def aclose(self) -> None:
        """End it. No connection is held between pages."""
        self._waiting, self._is_last = [], True
