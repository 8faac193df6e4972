"""A primary and its synchronous standby, which change places with every failover; their addresses never change.

What the primary has confirmed stands on the standby too, so a standby that takes over has it. That holds from the
moment in which the standby is synchronous; before that moment nobody may kill the primary, and `attach` returns only
after it. A primary that has just been promoted waits for nobody, because its standby was copied before it was told to.

On one machine a standby is never behind: whatever the primary has written, the standby has too, and an acknowledgement
that did not wait for it goes unnoticed. So in some rounds the line between the two is silent before the primary goes,
and what the primary sent meanwhile never arrives. In others the answers of the primary are lost before it goes, so that
commits stand on the standby of which no node has heard.
"""

from __future__ import annotations

import random
import time
from enum import Enum
from types import TracebackType
from typing import NamedTuple, Self

from tests.harness.postgres.cluster import Cluster
from tests.harness.postgres.proxy import Proxy
from tests.harness.server import HOST

STANDBY = "standby"
PATIENCE_MS = 6_000
ATTACH_SECONDS = 60.0
NOTICE_SECONDS = (0.0, 0.8)
"""Until somebody has noticed that the primary is gone."""
HANG_SECONDS = (0.5, 1.2)
AWAKE_SECONDS = 0.5
BEHIND_SECONDS = 0.4
"""For how long a standby receives nothing before its primary goes, or nodes hear nothing of it."""
LONG_SECONDS = PATIENCE_MS / 1_000 + 2
"""An outage that outlasts the patience of the nodes: they have to tell their callers something before it is over."""

# What a killed server leaves behind then lies in its data folder, and goes with it.
_SETTINGS = {"dynamic_shared_memory_type": "mmap"}


class Manner(Enum):
    """How a primary goes; in every case the standby takes over."""

    KILL = "killed"
    """All its processes at once; a little later the standby is promoted."""
    HANG = "hung"
    """It stands still, and is killed after the standby was promoted."""
    WAKE = "woken"
    """It stands still, wakes up when the standby is a primary already, and is killed later.

    It takes connections and writes meanwhile, but confirms none: the standby that it waits for has left.
    """


class Round(NamedTuple):
    """One failover."""

    manner: Manner
    is_behind: bool = False
    """Whether the standby lacks what the primary wrote last."""
    is_mute: bool = False
    """Whether the last answers of the primary are lost."""
    is_long: bool = False
    """Whether it takes longer than the nodes are patient."""

    def __str__(self) -> str:
        told = [self.manner.value, *["standby behind"] * self.is_behind, *["answers lost"] * self.is_mute]
        return ", ".join([*told, *["long outage"] * self.is_long])


class Pair:
    """Two servers; a context manager that starts them and removes them."""

    def __init__(self, nodes: int) -> None:
        self.primary = Cluster(_SETTINGS)
        self.standby = Cluster(_SETTINGS)
        self._ways = {cluster: Proxy(cluster.port) for cluster in (self.primary, self.standby)}
        self._feeds = {cluster: Proxy(cluster.port) for cluster in (self.primary, self.standby)}
        """Through these a standby receives what its primary writes."""
        places = ",".join(f"{HOST}:{way.port}" for way in self._ways.values())
        url = f"postgresql://semel@{places}/postgres?target_session_attrs=read-write&patience_ms={PATIENCE_MS}"
        self.urls = [url] * nodes
        """For `semel serve --store`: finds whichever of the two takes writes."""

    @property
    def running(self) -> Self:
        """Starts both servers, and removes them."""
        return self

    def fail_over(self, what: Round, chance: random.Random) -> None:
        """The primary goes and the standby takes its place; there is no standby until `attach`."""
        manner, old, new = what.manner, self.primary, self.standby
        self._feeds[old].silence(what.is_behind)
        self._ways[old].mute(what.is_mute)
        if what.is_behind or what.is_mute:
            time.sleep(BEHIND_SECONDS)
        if manner is Manner.KILL:
            old.kill()
        else:
            old.pause()
        self._ways[old].mute(False)
        time.sleep(chance.uniform(*(NOTICE_SECONDS if manner is Manner.KILL else HANG_SECONDS)))
        if what.is_long:
            time.sleep(LONG_SECONDS)
        new.promote()
        self.primary, self.standby = new, old
        if manner is Manner.WAKE:
            old.resume()
            time.sleep(AWAKE_SECONDS)
        elif manner is Manner.HANG:
            time.sleep(chance.uniform(*HANG_SECONDS))
        if manner is not Manner.KILL:
            old.kill()
        self._feeds[old].silence(False)

    def attach(self) -> None:
        """Make the other server a fresh standby, and wait until everything confirmed stands on it."""
        self.standby.copy_of(self.primary, STANDBY, self._feeds[self.primary].port)
        self.standby.start()
        self.primary.set("synchronous_standby_names", STANDBY)
        self._wait_until("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'")
        # What was confirmed a moment ago may not have waited for the standby; from here on it is there as well.
        [[end]] = self.primary.execute("SELECT pg_current_wal_flush_lsn()::text")
        self._wait_until(f"SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync' AND flush_lsn >= '{end}'")

    def __enter__(self) -> Self:
        try:
            self.primary.create()
            self.primary.start()
            self.attach()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def _wait_until(self, question: str) -> None:
        deadline = time.monotonic() + ATTACH_SECONDS
        while not self.primary.execute(question):
            if time.monotonic() > deadline:
                raise TimeoutError(f"The standby did not become synchronous in {ATTACH_SECONDS} s.")
            time.sleep(0.02)

    def _remove(self) -> None:
        for cluster, way in self._ways.items():
            cluster.remove()
            way.__exit__(None, None, None)
            self._feeds[cluster].__exit__(None, None, None)
