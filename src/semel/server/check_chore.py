"""The check of the store as a chore of the server: now and then, slowly, in a thread of its own.

Only the leader checks. Each surface is read in a snapshot of its own, so that no snapshot is open for longer than one
surface takes: while one is open, SQLite's log grows, and PostgreSQL frees no old rows. Between two pages the thread
pauses, for the first minute of a snapshot: it works for a fifth of the time. Nothing is changed, so a crash or a stop
leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from semel.server.context import Context
from semel.server.store_check import StoreCheck
from semel.store.table_check import StoreFault
from semel.surfaces.registry import NAMES

WORK_SECONDS, PAUSE_SECONDS = 0.005, 0.02
PAUSED_SECONDS = 60.0
"""A snapshot that is open for longer is read without pauses."""
LOGGED = 20
"""Faults of one check that are logged."""

_log = logging.getLogger("semel.check")


class _StoppedError(Exception):
    """The server is stopping."""


class StoreChecks:
    """Checks in one task on the event loop until it is cancelled; the work is in a thread."""

    def __init__(self, context: Context, interval_seconds: float) -> None:
        self._context = context
        self._interval = interval_seconds
        self._url = context.settings.store_url
        self._stop = threading.Event()

    async def run(self) -> None:
        """Pause and check in turn; without an interval, or for a memory store, there is nothing to do."""
        if not self._interval or self._url.startswith("memory:"):
            return
        try:
            with suppress(_StoppedError):
                while True:
                    await asyncio.sleep(self._interval)
                    await self._turn()
        finally:
            self._stop.set()

    async def _turn(self) -> None:
        try:
            if not await self._context.engine.leads():
                return
            pool = ThreadPoolExecutor(1, thread_name_prefix="semel-check")
            try:
                count = await asyncio.get_running_loop().run_in_executor(pool, self._check)
            finally:
                pool.shutdown(wait=False)
        except _StoppedError:
            raise
        except Exception as error:  # noqa: BLE001 - it is tried again; no promise depends on a check
            _log.warning("the store could not be checked", extra={"reason": str(error)})
            return
        metrics = self._context.metrics
        metrics.check_faults = count
        if not count:
            metrics.last_clean_check = self._context.world.wall_ms() / 1_000

    def _check(self) -> int:
        """The number of faults of the whole store."""
        count = 0
        for fault in self._faults():
            count += 1
            if count <= LOGGED:  # without the key: it may be a caller's secret
                facts = {"surface": fault.surface, "table": fault.table, "reason": fault.what}
                _log.error("a fault in the store", extra=facts)
        return count

    def _faults(self) -> Iterator[StoreFault]:
        for place, name in enumerate(NAMES):
            check = StoreCheck(self._url, (name,), has_files=place == 0, is_stopped=self._stop.is_set)
            yield from check.faults(_Pauses(self._stop).tell)


class _Pauses:
    """Pauses a walk over one snapshot, so that it works for a fifth of the time."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._began = self._last = time.monotonic()

    def tell(self, _: int) -> None:
        """Some rows were read."""
        now = time.monotonic()
        if now - self._last < WORK_SECONDS:
            return
        if self._stop.wait(PAUSE_SECONDS if now - self._began < PAUSED_SECONDS else 0):
            raise _StoppedError
        self._last = time.monotonic()
