"""A program as a user of `client.events` writes it: checked by mypy and Pyright, both strict, and never run."""

from __future__ import annotations

import sqlite3
from typing import Any, assert_type

from semel import AsyncClient, Client
from semel.client import (
    CommittedEvent,
    Cursor,
    Event,
    EventDraft,
    EventOutbox,
    EventsPrunedError,
    FileCursor,
    TransactionCursor,
)
from semel.client.errors import CallError


def synchronous(base: sqlite3.Connection) -> None:
    """The calls that block."""
    with Client("http://127.0.0.1:8788") as client:
        done = client.events.submit("order.placed", {"qty": 2}, partitions="orders", id="order-1", if_watermark=0)
        assert_type(done, CommittedEvent)
        assert_type(done.replayed, bool)
        verdicts = client.events.submit_many([EventDraft("order.placed", 5, ["orders", "shop-4"])])
        assert_type(verdicts, list[CommittedEvent | CallError])
        page = client.events.read(["orders"], since=Cursor(0, 5), limit=10, types=["order.placed"])
        assert_type(page.events[0].cursor, Cursor)
        assert_type(client.events.end("orders"), Cursor)
        assert_type(client.events.get("order-1"), Event)
        assert_type(client.events.last("orders", 5).next_before, int | None)
        assert_type(client.events.partitions("shop-").partitions[0].watermark, int)
        with client.events.follow("orders", cursor=FileCursor("cursor")) as events:
            for event in events:
                assert_type(event, Event)
                assert_type(event.data, Any)
                events.ack()
        follower = client.events.follow("orders", cursor=TransactionCursor(base, "reader"), live=False)
        try:
            assert_type(next(follower), Event)
        except EventsPrunedError as gap:
            assert_type(gap.next_cursor, Cursor)
            follower.accept(gap, at=gap.next_cursor.committed_id, using=base)
        box = EventOutbox("outbox.db", client)
        assert_type(box.submit("order.placed", partitions="orders", using=base), str)
        assert_type(box.flush(5).delivered, int)


async def asynchronous(session: Any) -> None:
    """The same calls as coroutines."""
    async with AsyncClient("http://127.0.0.1:8788") as client:
        assert_type(await client.events.submit("order.placed", partitions=["orders"]), CommittedEvent)
        follower = client.events.follow("orders", cursor=TransactionCursor(session, "reader"))
        async for event in follower:
            assert_type(event, Event)
            await follower.ack(event, using=session)
        assert_type(Cursor.of_text("0:57").text(), str)
