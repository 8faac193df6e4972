"""A program with replicas as a user writes it: checked by mypy and Pyright, both strict, and never run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_type

from semel.client import AsyncClient, Change, Client, DeadLetter, LostWrite, Pulled, Pushed, RowChanges, Synced
from semel.client.deltas.admin import GatewayClient, GatewayStats, LogPage


def is_open(columns: Mapping[str, Any]) -> bool:
    """A condition."""
    return columns.get("done") is False


def report(letter: DeadLetter) -> None:
    """What the server has refused."""
    assert_type(letter.code, str)


def blocking() -> None:
    """A replica that blocks."""
    with Client(tenant="shop") as client, client.deltas("app.db", client_id="till-1", on_dead=report) as db:
        assert_type(db.insert("orders", "1", {"item": "tea"}), str)
        assert_type(db.update("orders", "1", {"item": None}), str | None)
        assert_type(db.get("orders", "1"), dict[str, Any] | None)
        assert_type(db.push(), Pushed)
        assert_type(db.pull(), Pulled)
        assert_type(db.sync(), Synced)
        with db.transaction():
            assert_type(db.take_lost(), list[LostWrite])
        for change in db.follow(every=5.0):
            assert_type(change, Change)
        with db.watch("orders", is_open, follow=True) as watch:
            for changes in watch:
                assert_type(changes, RowChanges)
        for lost in db.lost_writes():
            assert_type(lost.winner, str | None)
        assert_type(client.deltas_admin.stats(), GatewayStats)
        for name in client.deltas_admin.gateways():
            assert_type(name, str)


async def waiting() -> None:
    """The same in an event loop."""
    async with AsyncClient() as client, client.deltas("app.db", "shop") as db:
        assert_type(await db.sync(), Synced)
        async for change in db.follow(live=False):
            assert_type(change.after, Mapping[str, Any] | None)
        async for changes in db.watch("orders", {"done": False}):
            assert_type(changes.removed, tuple[str, ...])
        async for lost in db.lost_writes():
            assert_type(lost, LostWrite)
        async for page in client.deltas_admin.log("shop", limit=5):
            assert_type(page, LogPage)
        async for one in client.deltas_admin.clients("shop"):
            assert_type(one, GatewayClient)
        await client.deltas_admin.save_schema("orders", {"item": "string"}, "shop")
