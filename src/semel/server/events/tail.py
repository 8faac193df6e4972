"""`GET /v1/events` as an event stream: history, then live, in one order without a gap.

A tail listens before it looks and reads the log from its own cursor, as every live reader does. It holds one page, and
reads the next only when the client has taken the last.
"""

from __future__ import annotations

from semel.contracts.events.limits import PAGE_DEFAULT
from semel.contracts.events.reading import Page, history
from semel.contracts.events.rules.submit import TOPIC
from semel.contracts.events.wire.http import COMMENT, Tail, event_frame
from semel.engine.contract import UnavailableError
from semel.server.asgi import Scope, Send
from semel.server.context import Context
from semel.server.events.feed import Feed
from semel.server.protocol import CONNECTION, Connection
from semel.server.shared_looks import SharedLooks

PULSE_SECONDS = 15.0


class Tails:
    """Sends event streams."""

    def __init__(self, context: Context, feed: Feed) -> None:
        self._context = context
        self._feed = feed
        self._looks: SharedLooks[Page] = SharedLooks(context.engine)
        self._page_bytes = context.settings.events_buffer_bytes

    async def follow(self, asked: Tail, expires_at_ms: int | None, scope: Scope, send: Send) -> None:
        """Event after event until the client has gone, its credential has ended, or the server stops."""
        connection: Connection | None = scope.get(CONNECTION)
        watch = self._context.engine.signals.watch(TOPIC)
        if connection is not None:
            connection.on_gone = watch.wake
        cursor = asked.since
        try:
            while not self._is_over(connection, expires_at_ms):
                watch.arm()
                page = await self._page(asked.names, cursor)
                for row in page.events:
                    await self._feed.wait_for_answer(row)
                if page.events:
                    await _send(send, b"".join(map(event_frame, page.events)))
                cursor = max(cursor, page.next_since if page.has_more else page.sync_to)
                if not page.has_more and not await watch.wait(self._patience(expires_at_ms)):
                    await _send(send, COMMENT)
        except UnavailableError:
            pass  # what was promised has been sent; the client comes back for more
        finally:
            watch.close()
        await send({"type": "http.response.body", "body": b""})

    async def _page(self, names: tuple[str, ...], cursor: int) -> Page:
        return await self._looks.look(
            (names, cursor),
            lambda reading: history(reading, names, cursor, None, PAGE_DEFAULT, self._page_bytes),
        )

    def _is_over(self, connection: Connection | None, expires_at_ms: int | None) -> bool:
        has_ended = expires_at_ms is not None and self._context.world.wall_ms() >= expires_at_ms
        return has_ended or self._context.is_stopping or (connection is not None and connection.gone)

    def _patience(self, expires_at_ms: int | None) -> float:
        if expires_at_ms is None:
            return PULSE_SECONDS
        return min(PULSE_SECONDS, max(0.0, (expires_at_ms - self._context.world.wall_ms()) / 1_000))


async def _send(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})
