"""A desk with everything real around it, on a store in memory, and nobody's wire in front of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from semel.engine.caller import WaitingCaller
from semel.engine.clock import SystemWorld
from semel.engine.engine import Engine
from semel.server.auth.principals import DEVELOPER, Principal, Principals
from semel.server.auth.stored_tokens import StoredTokens
from semel.server.context import Context
from semel.server.http.body import Bodies
from semel.server.ops.audit_log import AuditLog
from semel.server.ops.meter import Meter
from semel.server.ops.metrics import Metrics
from semel.server.quotas.accounts import Quotas
from semel.server.settings_loader import make_settings
from semel.server.writes.retry_log import RetryLog
from semel.store.open import open_store
from semel.surfaces.ledger.model import LedgerPlace, Operation, SetEntity
from semel.surfaces.ledger.service import LedgerCaller, LedgerService, make_service
from semel.surfaces.ledger.term_watch import LedgerMaintenance
from semel.surfaces.registry import SCOPE_RULES
from semel.surfaces.schema import MIGRATIONS, TABLES

PATIENCE_SECONDS = 60.0
SET: tuple[Operation, ...] = (SetEntity(b"k", b"v"),)


class Office:
    """One server's worth of parts; `known` are the callers it knows, nobody means development mode."""

    def __init__(self, folder: Path, known: Principals | None = None, **settings: Any) -> None:
        self._folder = folder
        self._world = SystemWorld()
        self._settings = make_settings(store="memory:", data=str(folder), **settings)
        self._known = known or Principals()

    async def __aenter__(self) -> Office:
        metrics = Metrics()
        store = open_store("memory:", TABLES, MIGRATIONS, self._world.wall_ms)
        engine = Engine(store, self._world, observer=metrics)
        audit = AuditLog(self._folder / "logs", self._world)
        self.context = Context(
            settings=self._settings,
            engine=engine,
            world=self._world,
            principals=self._known,
            stored_tokens=StoredTokens(engine, self._known, SCOPE_RULES, self._world),
            metrics=metrics,
            meter=Meter(self._world.monotonic_ms),
            audit=audit,
            quotas=Quotas(audit, lambda: 0.0),
            retries=RetryLog(engine, self._world.wall_ms),
            bodies=Bodies(self._settings.max_body_bytes, self._settings.max_uploads_bytes),
        )
        self.desk: LedgerService = make_service(self.context)
        await LedgerMaintenance(engine, self.desk.ledger, self._world).begin()
        self.admin = self.asked()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.context.engine.stop()
        self.context.audit.close()

    def asked(self, principal: Principal = DEVELOPER) -> LedgerCaller:
        """A call of somebody's; one caller waits for one answer at a time."""
        return self.desk.asked(principal, WaitingCaller(), {"path": "/x", "remote_addr": "192.0.2.7"}, has_token=True)

    async def org(self) -> LedgerPlace:
        """A new organization's own place."""
        return (await self.desk.make_org(self.admin, "shop", b"")).place

    async def vault(self, retain: int = 0) -> LedgerPlace:
        """A new vault in a new organization."""
        place = await self.org()
        return (await self.desk.make_vault(self.admin, place.org, retain, b"")).place

    async def fill(self, place: LedgerPlace, count: int, client: str = "filler") -> None:
        """So many blocks."""
        for _ in range(count):
            key = self._world.random_bytes(16)
            await self.desk.write(self.asked(), self.desk.prepare(place, client, None, key, SET))

    def audited(self) -> list[dict[str, Any]]:
        """The lines of the audit log that are in its files."""
        files = sorted((self._folder / "logs").glob("audit*.jsonl"))
        return [json.loads(line) for path in files for line in path.read_text("utf-8").splitlines()]


def in_office(
    folder: Path, work: Callable[[Office], Awaitable[None]], known: Principals | None = None, **settings: Any
) -> None:
    """Open one, work in it, and close it."""

    async def whole() -> None:
        async with Office(folder, known, **settings) as office:
            await asyncio.wait_for(work(office), PATIENCE_SECONDS)

    asyncio.run(whole())
