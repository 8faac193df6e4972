"""Look-ups of writes in a store in memory that has certain rows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from semel.engine.clock import SystemWorld
from semel.engine.engine import Engine
from semel.engine.reading import Reading
from semel.server.writes.lookup import FoundWrites
from semel.store.open import open_store
from semel.store.protocol import AnyTable, Changes, Row
from semel.surfaces.schema import MIGRATIONS, TABLES

R = TypeVar("R")


def blank(row: Callable[..., R], **columns: Any) -> R:
    """A row with these columns; the others are 0."""
    names: tuple[str, ...] = row._fields  # type: ignore[attr-defined]
    return row(**(dict.fromkeys(names, 0) | columns))


def looked(rows: dict[AnyTable, Sequence[Row]], look: Callable[[Reading], FoundWrites]) -> FoundWrites:
    """What a look-up finds in a store with these rows."""

    async def body() -> FoundWrites:
        world = SystemWorld()
        store = open_store("memory:", TABLES, MIGRATIONS, world.wall_ms)
        tx = store.begin(())
        tx.flush(Changes(rows, {}, {}))
        tx.commit()
        engine = Engine(store, world)
        try:
            return await engine.read(look)
        finally:
            await engine.stop()

    return asyncio.run(body())
