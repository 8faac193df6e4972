"""Follow a stream: catch up page by page, then long polls. Content is handed over once and in order.

A long poll returns the exact bytes and the offset to continue from in one answer, so a lost connection repeats nothing
and skips nothing. After a crash, continue at the `next_offset` of the last page that was handled.
"""

from __future__ import annotations

from typing import Self
from urllib.parse import urlencode

from semel.client.retry import ClientCaller
from semel.client.streams.values import ContentPage
from semel.client.transport.http_transport import ClientAnswer, ClientRequest

POLL_SECONDS = 30.0
"""How long the server holds a long poll without content."""
MOST_PAGE_BYTES = 1 << 31
"""A page holds at least one whole append, of any size that the server takes."""


def page_of(answer: ClientAnswer) -> ContentPage:
    """The page in an answer; a poll without content has an empty one."""
    return ContentPage(
        answer.body,
        answer.headers.get("content-type", ""),
        answer.headers["stream-next-offset"],
        answer.is_true("stream-up-to-date"),
        answer.is_true("stream-closed"),
        answer.headers.get("etag"),
    )


class StreamFollower:
    """Iterator over the pages of a stream: `async for page in client.streams.tail(name)`.

    `offset` is where it stands: behind the last page that it returned.
    """

    def __init__(self, caller: ClientCaller, path: str, offset: str, *, live: bool) -> None:
        self._caller = caller.endless() if live else caller
        self._path = path
        self._is_live = live
        self._is_at_tail = False
        self._cursor = ""
        self._has_ended = False
        self.offset = offset

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ContentPage:
        while not self._has_ended:
            answer = await self._caller.call(self._request())
            page = self._caller.understood(lambda: page_of(answer))  # noqa: B023 - called at once
            self.offset = page.next_offset
            self._cursor = answer.headers.get("stream-cursor", "")
            self._is_at_tail = page.is_up_to_date
            self._has_ended = page.is_closed or (not self._is_live and page.is_up_to_date)
            if page.data or self._has_ended:
                return page
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """End it. No connection is held between pages."""
        self._has_ended = True

    def _request(self) -> ClientRequest:
        query = {"offset": self.offset}
        if not self._is_live or not self._is_at_tail:
            return ClientRequest("GET", f"{self._path}?{urlencode(query)}", most_bytes=MOST_PAGE_BYTES)
        query |= {"live": "long-poll"} | ({"cursor": self._cursor} if self._cursor else {})
        return ClientRequest("GET", f"{self._path}?{urlencode(query)}", wait=POLL_SECONDS, most_bytes=MOST_PAGE_BYTES)
