"""Keeps the sums of what principals have stored: at the start they are read, then notes are added up once a second.

While no principal has a limit on what it stores, nothing is counted, and what was counted before is dropped.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from semel.engine.contract import EngineError, Write
from semel.engine.engine import Engine
from semel.engine.reading import Reading
from semel.engine.storage_meter import MAX_PRINCIPALS, STORAGE_NOTE, StorageLimits, StorageNoteRow
from semel.server.quotas.shares import (
    NOTES_AT_ONCE,
    QUOTA_SHARE,
    QUOTA_TOTAL,
    DropShares,
    KeepShares,
    QuotaShares,
    QuotaTotalRow,
    SharesKept,
)
from semel.store.protocol import Range

ROUND_SECONDS = 1.0
ROUNDS_TO_READ = 2
"""With several nodes the sums are read again after this number of rounds."""
MAX_WRITES = 64
"""Limit on the writes of one round."""
MAX_NOTES = 65_536
"""Limit on the notes that are read at once: more than all nodes write between two rounds."""


class UsageLook(NamedTuple):
    """What one round has to do."""

    has_work: bool
    expiry_ms: int


def read_used(reading: Reading) -> dict[str, StorageLimits]:
    """What each principal has stored: the totals, and what notes add that are not in them yet."""
    totals: list[QuotaTotalRow] = [
        QuotaTotalRow(*row) for row in reading.range(Range(QUOTA_TOTAL, "", (), MAX_PRINCIPALS))
    ]
    used = {row.principal.decode(): StorageLimits(row.keys, row.size) for row in totals}
    for row in reading.range(Range(STORAGE_NOTE, "", (), MAX_NOTES)):
        note = StorageNoteRow(*row)
        if note.principal:
            known = used.get(note.principal.decode(), StorageLimits())
            more = StorageLimits(known.keys + max(0, note.keys), known.size + max(0, note.size))
            used[note.principal.decode()] = more
    return used


def _look(reading: Reading) -> UsageLook:
    expiry_ms = reading.now.expiry_ms
    due = Range(QUOTA_SHARE, "until", (), 1, stop=(expiry_ms + 1,))
    found = reading.keys_each([Range(STORAGE_NOTE, "", (), 1), due])
    return UsageLook(any(found), expiry_ms)


def _has_any(reading: Reading) -> bool:
    return any(reading.keys_each([Range(table, "", (), 1) for table in (STORAGE_NOTE, QUOTA_SHARE, QUOTA_TOTAL)]))


class StoredUsage:
    """The sums of one namespace; used on the event loop only."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._contract = QuotaShares()
        self._is_read = False
        """Whether the sums in memory are those of the store."""
        self._may_have_rows = True
        self._rounds = 0

    async def begin(self) -> None:
        """Read the sums, before the first request."""
        if self._engine.storage.is_on:
            await self._read()

    async def run(self) -> None:
        """Add up and give back until cancelled; what fails is tried again in the next round."""
        while True:
            try:
                await self.round()
            except EngineError as error:
                self._engine.observer.store_failure(error)
            await asyncio.sleep(ROUND_SECONDS)

    async def round(self) -> None:
        """Do what there is to do now."""
        if not self._engine.storage.is_on:
            await self._drop()
            return
        self._rounds += 1
        is_late = self._engine.is_shared and self._rounds % ROUNDS_TO_READ == 0
        if is_late or (self._may_have_rows and not self._is_read):
            await self._read()
        self._is_read = self._may_have_rows = True
        look = await self._engine.read(_look)
        for _ in range(MAX_WRITES if look.has_work else 0):
            kept = await self._submit(KeepShares(look.expiry_ms))
            self._engine.storage.give_back(kept.given)
            if not kept.is_more:
                break

    async def _read(self) -> None:
        self._engine.storage.begin_read()
        used = await self._engine.read(read_used)
        self._engine.storage.end_read(used)
        self._is_read = self._may_have_rows = True

    async def _drop(self) -> None:
        """Drop what was counted, once after the start and each time that the last limit was removed."""
        if not self._may_have_rows:
            return
        self._is_read = False
        self._engine.storage.used.clear()
        if await self._engine.read(_has_any):
            while (await self._submit(DropShares())).is_more:
                continue
        self._may_have_rows = False

    async def _submit(self, command: KeepShares | DropShares) -> SharesKept:
        kept: SharesKept = await self._engine.submit(Write(self._contract, command, cost=NOTES_AT_ONCE))
        return kept
