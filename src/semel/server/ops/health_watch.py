"""Watches what makes a server unfit for writes besides its own state: the disk, the clocks, the standby, the library.

Once a second one thread looks, and `/readyz` tells the last result, so a probe costs nothing and waits for nothing. A
look that hangs, as on a dead network disk, keeps the result before it and holds up no one. Each reason is advice for a
load balancer; the store itself refuses writes that would not reach the disk. Any caller may read them, so they name no
path and no host.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from semel.kernel.clock import ClockPace, World, advance, start
from semel.server.settings import ServerSettings
from semel.store.protocol import StoreError, StoreHealth
from semel.store.sqlite.data_folder import FULL_BYTES

LOOK_SECONDS = 1.0


class UnreadyReason(NamedTuple):
    """Why a write should be sent to another server, or later."""

    reason: str
    found: str
    advice: str


class HealthLook(NamedTuple):
    """What one look needs."""

    settings: Callable[[], ServerSettings]
    """The present settings, which may change."""
    folder: Path | None
    """The folder of the database; None if it is not on this machine."""
    world: World
    store: Callable[[], StoreHealth]
    library: str = ""
    """What is wrong with the library of the database; empty if it is a good one."""


class HealthWatch:
    """Looks once a second until it is cancelled."""

    def __init__(self, look: HealthLook) -> None:
        self.reasons: Sequence[UnreadyReason] = ()
        self._look = look
        self._pace: ClockPace | None = None

    async def run(self) -> None:
        """Look and pause in turn."""
        thread = ThreadPoolExecutor(1, thread_name_prefix="semel-health")
        loop = asyncio.get_running_loop()
        try:
            while True:
                self.reasons = await loop.run_in_executor(thread, self.look)
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            thread.shutdown(wait=False, cancel_futures=True)

    def look(self) -> list[UnreadyReason]:
        """Look once; all reasons that there are."""
        look = self._look
        settings = look.settings()
        try:
            health = look.store()
        except StoreError:  # the store is away, which is a reason of its own
            health = StoreHealth()
        found = [
            _library(look.library),
            _disk(look.folder, settings.ready_free_bytes),
            self._jump(settings.ready_clock_ms),
            _disagreement(look.world.wall_ms(), health.clock_ms, settings.ready_clock_ms),
            _unsafe(health.unsafe),
            _standby(health.standby),
            _stalled(health.stalled),
        ]
        return [reason for reason in found if reason is not None]

    def _jump(self, bound_ms: int) -> UnreadyReason | None:
        """A jump of the wall clock that has not been reversed, and not been kept for ten minutes either."""
        world = self._look.world
        wall_ms, monotonic_ms = world.wall_ms(), world.monotonic_ms()
        pace = self._pace = advance(self._pace or start(wall_ms, monotonic_ms), wall_ms, monotonic_ms)
        if pace.jumped_at is None or not bound_ms:
            return None
        seconds = (wall_ms - pace.expiry_ms) // 1_000
        return UnreadyReason(
            "clock jumped",
            f"the clock of this machine jumped ahead by {seconds} s",
            "Set the clock right. If the new time is right, expiries follow it after 10 minutes.",
        )


def _library(flaw: str) -> UnreadyReason | None:
    return UnreadyReason("unsafe library", flaw, "Update apsw, and start the server again.") if flaw else None


def _disk(folder: Path | None, bound: int) -> UnreadyReason | None:
    if folder is None:
        return None
    least = max(bound, FULL_BYTES)
    try:
        free = free_bytes(folder)
    except OSError as error:
        told = f"the folder of the database cannot be looked at: {error.strerror}"
        return UnreadyReason("disk away", told, "Mount the disk of the data folder again.")
    if free >= least:
        return None
    return UnreadyReason(
        "disk full",
        f"the disk of the database has {free:,} bytes free, fewer than {least:,}",
        f"Free some disk space: below {FULL_BYTES:,} bytes new writes are refused.",
    )


def free_bytes(folder: Path) -> int:
    """The bytes on the disk of a folder that this user may still fill."""
    about = os.statvfs(folder)
    return about.f_bavail * about.f_frsize


def _disagreement(wall_ms: int, store_ms: int | None, bound_ms: int) -> UnreadyReason | None:
    if store_ms is None or not bound_ms or abs(wall_ms - store_ms) <= bound_ms:
        return None
    side = "ahead of" if wall_ms > store_ms else "behind"
    return UnreadyReason(
        "clocks disagree",
        f"the clock of this machine is {abs(wall_ms - store_ms) // 1_000} s {side} that of the database",
        "Set both clocks by a time service.",
    )


def _unsafe(flaw: str) -> UnreadyReason | None:
    advice = "Set fsync = on and reload PostgreSQL. Until then every write is refused."
    return UnreadyReason("unsafe database", flaw, advice) if flaw else None


def _standby(flaw: str) -> UnreadyReason | None:
    advice = "Start the standby, or take its name out of synchronous_standby_names."
    return UnreadyReason("standby missing", flaw, advice) if flaw else None


def _stalled(flaw: str) -> UnreadyReason | None:
    advice = (
        "Look whether the standby runs, whether its replay is paused, and whether the network to it works; or take its "
        "name out of synchronous_standby_names."
    )
    return UnreadyReason("standby stalled", flaw, advice) if flaw else None
