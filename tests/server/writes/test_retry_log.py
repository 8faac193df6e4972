"""The retry log in one process: its limits, its soft writes, what becomes of a failed one, and the end of old rows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from time import monotonic

import pytest

from semel.engine.clock import SystemWorld
from semel.engine.contract import NotStoredError, OutcomeUnknownError, Write
from semel.engine.engine import Engine
from semel.engine.group_commit import BatchReport, Commit, SilentObserver
from semel.kernel.clock import World
from semel.server.writes import retry_log, retry_table
from semel.server.writes.retry_log import RetryLog
from semel.server.writes.retry_table import RETRY, RETRY_TOTAL, FreeRetries, RetryRow
from semel.store.open import open_store
from semel.surfaces.schema import MIGRATIONS, TABLES

PLACE = ("streams", b"key")


class Reports(SilentObserver):
    """Remembers how batches ended."""

    def __init__(self) -> None:
        self.commits: list[Commit] = []

    def batch(self, report: BatchReport) -> None:
        self.commits.append(report.commit)


class Rig:
    """An engine over a store in memory, and its retry log."""

    def __init__(self, world: World) -> None:
        self.reports = Reports()
        store = open_store("memory:", TABLES, MIGRATIONS, world.wall_ms)
        self.engine = Engine(store, world, observer=self.reports)
        self._seconds = count(1)
        self._began = monotonic()
        self.first_ms = round(world.wall_ms() + 1_000)
        self.log = RetryLog(self.engine, world.wall_ms)

    def note(self, times: int, key: bytes = PLACE[1]) -> None:
        for _ in range(times):
            self.log.note(PLACE[0], key, self._began + next(self._seconds), "client:ada", "192.0.2.7")

    def seconds(self, ms: int) -> int:
        """How many seconds after the first retry a time is."""
        return round((ms - self.first_ms) / 1_000)

    async def row(self, key: bytes = PLACE[1]) -> RetryRow | None:
        return await self.engine.read(lambda reading: reading.get(RETRY, (PLACE[0].encode(), key)))

    async def rows(self) -> int:
        total = await self.engine.read(lambda reading: reading.get(RETRY_TOTAL, (b"",)))
        return 0 if total is None else total.rows


@asynccontextmanager
async def rigged() -> AsyncIterator[Rig]:
    rig = Rig(SystemWorld())
    yield rig
    await rig.engine.stop()


def test_retries_are_added_to_what_is_stored() -> None:
    async def body() -> None:
        async with rigged() as rig:
            for times in (3, 20):
                rig.note(times)
                await rig.log.finish()
            row = await rig.row()
            assert row is not None
            counted = retry_table.stored_retries(row)
            assert (row.total, rig.seconds(row.since), await rig.rows()) == (23, 0, 1)
            assert [rig.seconds(seen.at) for seen in counted.last] == list(range(7, 23))
            assert rig.log.unsaved(PLACE) is None

    asyncio.run(body())


def test_storing_retries_is_a_soft_commit_and_nothing_to_store_is_none() -> None:
    async def body() -> None:
        async with rigged() as rig:
            await rig.log.finish()
            assert rig.reports.commits == []
            rig.note(5)
            await rig.log.finish()
        assert rig.reports.commits == [Commit.SOFT]

    asyncio.run(body())


def test_what_waits_is_told_before_it_is_stored() -> None:
    async def body() -> None:
        async with rigged() as rig:
            rig.note(18)
            counted = rig.log.unsaved(PLACE)
            assert counted is not None
            assert (counted.total, len(counted.last), rig.seconds(counted.since)) == (18, 16, 0)

    asyncio.run(body())


def test_a_full_queue_and_too_many_writes_drop_retries_and_count_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry_log, "MAX_WAITING", 5)
    monkeypatch.setattr(retry_log, "MAX_UNSAVED", 2)

    async def body() -> None:
        async with rigged() as rig:
            rig.note(7)
            assert rig.log.dropped == 2
            await rig.log._fold_all()
            for number in range(3):
                rig.note(1, b"%d" % number)
            await rig.log._fold_all()
            assert (rig.log.noted, rig.log.dropped) == (6, 4)

    asyncio.run(body())


@pytest.mark.parametrize(("error", "kept"), [(NotStoredError("no"), 23), (OutcomeUnknownError("?"), 3)])
def test_what_was_not_stored_is_kept_and_what_may_be_stored_is_not_counted_twice(
    error: Exception, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        async with rigged() as rig:

            async def refuse(write: Write) -> None:
                rig.note(3)
                raise error

            rig.note(20)
            monkeypatch.setattr(rig.engine, "submit", refuse)
            await rig.log.finish()
            monkeypatch.undo()
            counted = rig.log.unsaved(PLACE)
            assert counted is not None
            assert (counted.total, len(counted.last)) == (kept, min(kept, 16))
            assert [rig.seconds(seen.at) for seen in counted.last] == list(range(23))[-min(kept, 16) :]
            assert rig.seconds(counted.since) == (0 if kept == 23 else 20)

    asyncio.run(body())


def test_there_is_a_limit_on_rows_and_known_ones_are_still_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry_table, "MAX_ROWS", 2)

    async def body() -> None:
        async with rigged() as rig:
            for key in (b"a", b"b", b"c", b"a"):
                rig.note(1, key)
                await rig.log.finish()
            rows = [await rig.row(key) for key in (b"a", b"b", b"c")]
            assert [None if row is None else row.total for row in rows] == [2, 1, None]
            assert await rig.rows() == 2

    asyncio.run(body())


def test_expired_rows_are_freed_and_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        async with rigged() as rig:
            contract = rig.log.contract
            rig.note(1, b"new")
            await rig.log.finish()
            assert await rig.engine.read(contract.chores) == []
            monkeypatch.setattr(retry_table, "RETAINED_MS", -1_000)
            rig.note(1, b"old")
            await rig.log.finish()
            chores: Sequence[FreeRetries] = await rig.engine.read(contract.chores)
            assert [chore.keys for chore in chores] == [((b"streams", b"old"),)]
            await rig.engine.submit(Write(contract, FreeRetries((*chores[0].keys, (b"streams", b"new")))))
            assert (await rig.row(b"old"), await rig.rows()) == (None, 1)
            assert await rig.row(b"new") is not None

    asyncio.run(body())
