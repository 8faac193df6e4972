"""The term of one node: opened before the first request, and raised when the database has changed.

On a store of one process every start is a new term. On a database of many nodes a term is a cluster, its timeline and
its tables: the first node that sees another one, after a failover or a restore, raises the term for all nodes.
"""

from __future__ import annotations

import asyncio
import logging

from semel.engine.contract import EngineError, Write
from semel.engine.engine import Engine
from semel.kernel.clock import World
from semel.store.protocol import StoreError
from semel.surfaces.ledger.commands import MaintenanceDone, OpenTerm
from semel.surfaces.ledger.contract import LedgerContract

_log = logging.getLogger("semel.ledger")

LOOK_SECONDS = 5.0
SECRET_BYTES = 32


class LedgerMaintenance:
    """Keeps the term of one node current."""

    def __init__(self, engine: Engine, ledger: LedgerContract, world: World) -> None:
        self._engine = engine
        self._ledger = ledger
        self._world = world
        self._era: bytes | None = None

    async def begin(self) -> None:
        """Open the term before the first answer: every block of this start must carry it."""
        await self._open(await self._engine.era())

    async def run(self) -> None:
        """Check until cancelled whether a shared store is still on the same timeline."""
        while self._era:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                era = await self._engine.era()
                if era != self._era:
                    await self._open(era)
            except (EngineError, StoreError) as error:
                _log.warning("upkeep of the ledger waits for the store", extra={"reason": str(error)})
            except Exception:  # noqa: BLE001 - upkeep goes on; what broke is tried again in a moment
                _log.exception("upkeep of the ledger failed")

    async def _open(self, era: bytes) -> None:
        command = OpenTerm(era, self._world.random_bytes(SECRET_BYTES))
        done: MaintenanceDone = await self._engine.submit(Write(self._ledger, command))
        self._era = era
        _log.info("ledger open", extra={"term": done.number})
