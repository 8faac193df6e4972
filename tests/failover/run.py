"""Take the primary away under two nodes with load, promote its standby, and check every append; again and again.

The nodes are told nothing: they find the new primary by themselves, and find out there what became of the commits that
were under way. Then the old primary is made anew as the standby of the new one, and the next round goes the other way.
`make nightly NAME=failover` runs twenty rounds.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import httpx

from tests.failover.clients import Answered, RovingClient, TailWatcher, UnnamedClient
from tests.failover.pair import Manner, Round
from tests.failover.verdict import FailoverVerdict, judge
from tests.harness.server import RunningServer

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
BEFORE_SECONDS = (0.3, 0.9)
AFTER_SECONDS = 0.3
HASTY_SECONDS = 0.3
"""Some clients give up early and repeat, perhaps on the other node, what the first one is still about to do."""
PATIENT_SECONDS = 30.0
"""The others wait for what they are told."""
ROUND_SECONDS = 300.0

F = TypeVar("F")
"""What can happen to a database."""
F_contra = TypeVar("F_contra", contravariant=True)


class Database(Protocol[F_contra]):
    """A database that can fail over, and be made whole again; it runs while its context is open."""

    @property
    def urls(self) -> Sequence[str]:
        """For `semel serve --store`, one for each node."""

    @property
    def running(self) -> AbstractContextManager[Any]:
        """Starts it, and removes it in the end."""

    def fail_over(self, what: F_contra, chance: random.Random) -> None:
        """Let it happen; returns when something accepts writes again, or is about to."""

    def attach(self) -> None:
        """Make it whole, so that the next failover loses nothing that was confirmed."""


@dataclass(slots=True)
class Outcome(Generic[F]):
    """What became of the appends, and for how long none was answered, round by round."""

    verdict: FailoverVerdict = field(default_factory=FailoverVerdict)
    pauses: list[tuple[F, float]] = field(default_factory=list)


class FailoverRun(Generic[F]):
    """Two nodes over a database, and rounds of failovers in this order."""

    def __init__(
        self,
        folder: Path,
        database: Database[F],
        order: Sequence[F],
        rounds: int,
        seed: int,
        report: Callable[[int, str], None] = lambda done, what: None,
    ) -> None:
        self._folder = folder
        self._database = database
        self._order = order
        self._nodes: list[RunningServer] = []
        self._rounds = rounds
        self._chance = random.Random(seed)
        self._report = report
        self._answered = Answered()
        self._clients: list[RovingClient | UnnamedClient] = []
        self._watchers: list[TailWatcher] = []
        self._outcome: Outcome[F] = Outcome()

    def run(self) -> Outcome[F]:
        """Fail over so many times, and judge every append since the start each time."""
        with ExitStack() as running:
            running.enter_context(self._database.running)
            for number, url in enumerate(self._database.urls):
                node = RunningServer(self._folder / f"node{number}", env={"SEMEL_STORE": url})
                self._nodes.append(running.enter_context(node))
            asyncio.run(self._all_rounds())
        return self._outcome

    @property
    def _urls(self) -> list[str]:
        return [node.url for node in self._nodes]

    async def _all_rounds(self) -> None:
        async with AsyncExitStack() as opened:
            hasty, patient = [
                [
                    await opened.enter_async_context(httpx.AsyncClient(base_url=url, timeout=seconds))
                    for url in self._urls
                ]
                for seconds in (HASTY_SECONDS, PATIENT_SECONDS)
            ]
            for stream in range(STREAMS):
                answer = await patient[0].put(f"/v1/stream/s{stream}", headers={"Content-Type": "application/json"})
                answer.raise_for_status()
            self._clients = [self._client(number, hasty, patient) for number in range(STREAMS * CLIENTS_A_STREAM)]
            self._watchers = [TailWatcher(node, self._answered) for node in patient]
            for number in range(self._rounds):
                what = self._order[number % len(self._order)]
                await self._round(what)
                self._report(number + 1, f"{what}, {self._outcome.pauses[-1][1]:.1f} s without an answer")

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

    async def _round(self, what: F) -> None:
        try:
            async with asyncio.timeout(ROUND_SECONDS):
                await self._under_load(what)
        except TimeoutError as error:
            tails = "\n".join(node.output_tail() for node in self._nodes)
            raise TimeoutError(f"A round ({what}) was not over after {ROUND_SECONDS} s:\n{tails}") from error
        everything = [operation for client in self._clients for operation in client.operations]
        verdict = await asyncio.to_thread(judge, self._urls, everything, self._chance)
        verdict.stale = [told for watcher in self._watchers for told in watcher.stale]
        verdict.add(self._outcome.verdict)
        self._outcome.verdict = verdict

    async def _under_load(self, what: F) -> None:
        """All clients at work from before the failover until the next one could come."""
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as work:
            for client in (*self._clients, *self._watchers):
                work.create_task(client.work(stop))
            await asyncio.sleep(self._chance.uniform(*BEFORE_SECONDS))
            began = time.monotonic()
            await asyncio.to_thread(self._database.fail_over, what, self._chance)
            await self._answered.wait()
            await asyncio.sleep(AFTER_SECONDS)
            await asyncio.to_thread(self._database.attach)
            await asyncio.sleep(AFTER_SECONDS)
            stop.set()
        self._outcome.pauses.append((what, self._answered.longest_pause(began)))
