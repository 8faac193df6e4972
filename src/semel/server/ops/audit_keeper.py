"""Keeps the heads of the audit log in the store: one small write every two seconds, while lines are written."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from semel.engine.contract import EngineError, Write
from semel.engine.engine import Engine
from semel.server.ops.audit_chain import ChainHead
from semel.server.ops.audit_head import AuditHeads, KeepHeads
from semel.server.ops.audit_log import NAMES, AuditLog

HEAD_SECONDS = 2.0


class HeadKeeper:
    """Stores the heads of this node until it is cancelled."""

    def __init__(
        self, engine: Engine, audit: AuditLog, node: bytes, epoch: int, heads: Mapping[str, ChainHead]
    ) -> None:
        """`heads` are those that the store has."""
        self._engine = engine
        self._audit = audit
        self._node = node
        self._epoch = epoch
        self._kept = dict(heads)
        self._lines = -1

    async def run(self) -> None:
        """Store and pause in turn. A store that cannot be written to is tried again in the next round."""
        while True:
            await asyncio.sleep(HEAD_SECONDS)
            if self._audit.lines != self._lines:
                await self.keep()

    async def keep(self) -> None:
        """Sync the files, and store the heads that have moved."""
        lines = self._audit.lines
        heads = await self._audit.synced()
        moved = {name: head for name, head in heads.items() if head != self._kept.get(name)}
        with suppress(EngineError):
            if moved:
                await self._engine.submit(Write(AuditHeads(), KeepHeads(self._node, self._epoch, moved)))
            self._kept |= moved
            self._audit.vouch(moved)
            if heads.keys() == set(NAMES):
                self._lines = lines

    async def begin(self) -> None:
        """Store the heads before the first line, so that a start without a head is never that after a crash."""
        await self._keep_soon()

    async def finish(self) -> None:
        """Store the heads of all lines before the engine stops."""
        self._audit.end_pacing()
        await self._keep_soon()

    async def _keep_soon(self) -> None:
        """As `keep`; a disk or a store that does not answer is not waited for."""
        with suppress(TimeoutError):
            async with asyncio.timeout(HEAD_SECONDS):
                await self.keep()
