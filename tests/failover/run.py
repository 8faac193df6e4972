"""Appends through two nodes while the primary under them goes and its standby takes over, again and again.

The nodes are told nothing: they find the new primary by themselves, and find out there what became of the commits that
were under way. Then the old primary is made anew as the standby of the new one, and the next round goes the other way.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import httpx

from tests.failover.clients import Answered, RovingClient, TailWatcher, UnnamedClient
from tests.failover.pair import Manner, Pair, Round
from tests.failover.verdict import ACKNOWLEDGED, INTERRUPTED, judge_failovers
from tests.harness.crash.run import POSTGRES, AsyncSurface, CoroutineClient, CrashPlan
from tests.harness.crash.verdict import Verdict
from tests.harness.crash.ways import Database, Failovers, Way

NODES = 2
STREAMS = 4
CLIENTS_A_STREAM = 9
ORDER = (
    Round(Manner.KILL, is_behind=True),
    Round(Manner.KILL, is_mute=True),
    Round(Manner.HANG, is_behind=True),
    Round(Manner.KILL, is_mute=True, is_long=True),
    Round(Manner.WAKE),
    Round(Manner.KILL),
    Round(Manner.KILL, is_behind=True, is_long=True),
    Round(Manner.HANG),
)
"""Which failovers there are, in turn."""
NAMED_CLIENTS = 6
HASTY_SECONDS = 0.3
"""Some clients give up early and repeat, perhaps on the other node, what the first one is still about to do."""
PATIENT_SECONDS = 30.0
"""The others wait for what they are told."""
JSON = {"Content-Type": "application/json"}


class StreamsUnderFailovers(AsyncSurface):
    """Nothing is lost, doubled or answered otherwise, and no node shows less than what was answered."""

    kills = 20
    stores = (POSTGRES,)
    nodes = NODES
    ends_a_round = 1
    has_quiet_logs = False  # they tell of the database
    shows = (ACKNOWLEDGED, INTERRUPTED)
    order: Sequence[Any] = ORDER

    def __init__(self, plan: CrashPlan) -> None:
        self.database = self.make_database(plan)
        super().__init__(plan)
        nodes = [server.url for server in self.servers]
        hasty, patient = [
            [httpx.AsyncClient(base_url=url, timeout=seconds) for url in nodes]
            for seconds in (HASTY_SECONDS, PATIENT_SECONDS)
        ]
        self._http = [*hasty, *patient]
        self._answered = Answered()
        self._clients = [self._client(number, hasty, patient) for number in range(STREAMS * CLIENTS_A_STREAM)]
        self._watchers = [TailWatcher(node, self._answered) for node in patient]

    def make_database(self, plan: CrashPlan) -> Database[Any]:
        """What fails over."""
        return Pair(NODES)

    def make_urls(self) -> Sequence[str]:
        """Those of the database."""
        return self.database.urls

    @property
    def running(self) -> AbstractContextManager[Any]:
        """The database."""
        return self.database.running

    def prepare(self) -> None:
        """Make the streams."""
        for stream in range(STREAMS):
            httpx.put(f"{self.servers[0].url}/v1/stream/s{stream}", headers=JSON).raise_for_status()

    def way(self) -> Way:
        """The database fails over."""
        answered = self._answered
        self._failovers = Failovers(
            self.database, self.order, self.chance, lambda: answered.count, answered.longest_pause
        )
        return self._failovers

    def coroutines(self) -> Sequence[CoroutineClient]:
        """Writers, and a reader for each node."""
        return [*self._clients, *self._watchers]

    def progress(self) -> int:
        """How many appends have been answered."""
        return self._answered.count

    def _client(
        self, number: int, hasty: Sequence[httpx.AsyncClient], patient: Sequence[httpx.AsyncClient]
    ) -> RovingClient | UnnamedClient:
        """Each stream has two of each sort, one hasty and one patient, at home on different nodes.

        Besides it has three patient ones whose appends have no name: what they are told cannot be mended by a retry.
        """
        kind, stream = divmod(number, STREAMS)
        nodes = patient if kind >= NAMED_CLIENTS else (hasty, patient)[(kind + stream) % 2]
        home = (kind // 3 + stream // 2) % NODES
        nodes = [*nodes[home:], *nodes[:home]]
        name = f"c{number}"
        if kind % 3 == 0 or kind >= NAMED_CLIENTS:
            return UnnamedClient(nodes, f"s{stream}", name, seed=number, answered=self._answered)
        return RovingClient(nodes, f"s{stream}", name, keyed=kind % 3 == 1, seed=number, answered=self._answered)

    def judge(self, verdict: Verdict) -> None:
        """Every append since the start."""
        everything = [operation for client in self._clients for operation in client.operations]
        judge_failovers(verdict, [server.url for server in self.servers], everything, self.chance)
        verdict.counts["reads"] = sum(watcher.reads for watcher in self._watchers)
        for watcher in self._watchers:
            for told in watcher.stale:
                verdict.blame(f"stale: {told}")

    async def hang_up(self) -> None:
        """Close all connections."""
        for http in self._http:
            await http.aclose()

    def lines(self) -> Iterable[str]:
        """For how long nothing was acknowledged, by what has happened."""
        pauses = self._failovers.pauses
        for what in (None, *dict.fromkeys(self.order)):
            seconds = [pause for one, pause in pauses if what in (None, one)]
            if seconds:
                told = f"median {statistics.median(seconds):.1f} s, longest {max(seconds):.1f} s"
                yield f"nothing acknowledged, {what or 'all'} ({len(seconds)}): {told}"
