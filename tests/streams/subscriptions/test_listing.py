"""What the list of subscriptions reads for a caller with scopes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from semel.engine.clock import SystemWorld
from semel.engine.engine import Engine
from semel.engine.reading import Reading
from semel.kernel.keys import pack
from semel.kernel.verdict import NEVER
from semel.server.auth.principals import AccessScope, Principal, Role
from semel.store.open import open_store
from semel.store.protocol import Changes, Range
from semel.surfaces.schema import MIGRATIONS, TABLES
from semel.surfaces.streams.subscriptions.listing import list_subscriptions
from semel.surfaces.streams.subscriptions.reading import FIRST_PATHS
from semel.surfaces.streams.subscriptions.tables import LINK, PULL_WAKE, SUBSCRIPTION, LinkRow, SubscriptionRow
from tests.server.writes.looked import blank

STREAMS = 700
OPEN = Principal("few", "client", frozenset({Role.READ}), (AccessScope("streams", b"open/", is_prefix=True),))


def subscription(number: int) -> SubscriptionRow:
    name, life = b"s-%03d" % number, number.to_bytes(16, "big")
    texts = dict.fromkeys(("config", "base", "wake_id", "holder", "owner", "creator"), b"")
    return blank(
        SubscriptionRow, **texts, name=pack(name), id=name, life=life, kind=PULL_WAKE,
        pattern=None, url=None, wake_stream=b"open/wakes", description=None, due_at=NEVER,
    )  # fmt: skip


def links(row: SubscriptionRow, paths: Sequence[bytes]) -> list[LinkRow]:
    """Explicit links, in this order."""
    return [
        blank(LinkRow, life=row.life, scope=b"%04d" % at, name=row.name, path=path, kind=1, stream_id=b"")
        for at, path in enumerate(paths)
    ]


async def listed(rows: Sequence[SubscriptionRow], linked: Sequence[LinkRow]) -> list[str]:
    world = SystemWorld()
    store = open_store("memory:", TABLES, MIGRATIONS, world.wall_ms)
    tx = store.begin(())
    tx.flush(Changes({SUBSCRIPTION: rows, LINK: linked}, {}, {}))
    tx.commit()
    engine = Engine(store, world)
    try:
        page = json.loads(await list_subscriptions(engine, OPEN, b"", 100, 1_000))
        return [one["id"] for one in page["subscriptions"]]
    finally:
        await engine.stop()


def test_of_subscriptions_of_others_few_streams_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, read = [subscription(number) for number in range(30)], list[int]()

    def counted(self: Reading, wanted: Range) -> Sequence[Any]:
        found = real(self, wanted)
        if wanted.table is LINK:
            read.append(len(found))
        return found

    real = Reading.range
    monkeypatch.setattr(Reading, "range", counted)
    linked = [link for row in rows for link in links(row, [b"closed/%d" % at for at in range(STREAMS)])]
    assert asyncio.run(listed(rows, linked)) == []
    assert sum(read) == len(rows) * FIRST_PATHS


@pytest.mark.parametrize("closed", [None, 0, FIRST_PATHS - 1, FIRST_PATHS, STREAMS - 1])
def test_one_stream_of_another_hides_a_subscription_wherever_it_is_in_the_order(closed: int | None) -> None:
    paths = [b"open/%d" % at for at in range(STREAMS)]
    if closed is not None:
        paths[closed] = b"closed/one"
    row = subscription(1)
    assert asyncio.run(listed([row], links(row, paths))) == (["s-001"] if closed is None else [])
