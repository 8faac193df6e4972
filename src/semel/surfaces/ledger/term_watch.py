"""The term of one node: opened before the first request, and raised when the database has changed.

On a store of one process every start is a new term. On a database of many nodes a term is a cluster, its timeline and
its tables: the first node that sees another one, after a failover or a restore, raises the term for all nodes.
"""

from __future__ import annotations

import asyncio
import logging

from semel.engine.contract import EngineError, NoWritesError, Write
from semel.engine.engine import Engine
from semel.kernel.clock import World
from semel.store.protocol import StoreError
from semel.surfaces.ledger.commands import MaintenanceDone, OpenTerm
from semel.surfaces.ledger.contract import LedgerContract

_log = logging.getLogger("semel.ledger")

LOOK_SECONDS = 5.0
OPEN_SECONDS = 1.0
"""Seconds between two tries to open the first term."""
SECRET_BYTES = 32


class LedgerMaintenance:
    """Keeps the term of one node current."""

    def __init__(self, engine: Engine, ledger: LedgerContract, world: World) -> None:
        self._engine = engine
        self._ledger = ledger
        self._world = world
        self._era: bytes | None = None
        """The timeline of the open term; None if it is not open yet."""
        self._first: Write | None = None
        """The write that opens it at the start, until it is stored."""

    async def begin(self) -> None:
        """Open the term before the first answer: every block of this start must carry it.

        A store that takes no writes does so before the first other change.
        """
        try:
            await self._open(await self._engine.era())
        except NoWritesError as error:
            _log.warning("the ledger opens when the store takes writes", extra={"reason": str(error)})

    async def run(self) -> None:
        """Check until cancelled whether a shared store is still on the same timeline."""
        while self._era != b"":
            await asyncio.sleep(LOOK_SECONDS if self._first is None else OPEN_SECONDS)
            try:
                era = await self._engine.era()
                if era != self._era:
                    await self._open(era)
            except NoWritesError:
                continue
            except (EngineError, StoreError) as error:
                _log.warning("upkeep of the ledger waits for the store", extra={"reason": str(error)})
            except Exception:  # noqa: BLE001 - upkeep goes on; what broke is tried again in a moment
                _log.exception("upkeep of the ledger failed")

    async def _open(self, era: bytes) -> None:
        write = self._first or Write(self._ledger, OpenTerm(era, self._world.random_bytes(SECRET_BYTES)))
        if self._era is None:
            self._first = write
            done: MaintenanceDone = await self._engine.open(write)
        else:
            done = await self._engine.submit(write)
        self._era, self._first = write.command.era, None
        _log.info("ledger open", extra={"term": done.number})
