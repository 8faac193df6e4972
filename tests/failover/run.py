"""Take the primary away under two nodes with load, promote its standby, and check every append; again and again.

The nodes are told nothing: they find the new primary by themselves, and find out there what became of the commits that
were under way. Then the old primary is made anew as the standby of the new one, and the next round goes the other way.
`make failover` runs twenty rounds.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.failover.clients import Answered, RovingClient, UnnamedClient
from tests.failover.pair import Manner, Pair, Round
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
ROUND_SECONDS = 120.0


@dataclass(slots=True)
class Outcome:
    """What became of the appends, and for how long none was answered, round by round."""

    verdict: FailoverVerdict = field(default_factory=FailoverVerdict)
    pauses: list[tuple[Round, float]] = field(default_factory=list)


class FailoverRun:
    """Two nodes, two database servers, so many rounds."""

    def __init__(
        self, folder: Path, rounds: int, seed: int, report: Callable[[int, str], None] = lambda done, what: None
    ) -> None:
        self._pair = Pair()
        env = {"SEMEL_STORE": self._pair.url}
        self._nodes = [RunningServer(folder / f"node{number}", env=env) for number in range(NODES)]
        self._rounds = rounds
        self._chance = random.Random(seed)
        self._report = report
        self._answered = Answered()
        self._clients: list[RovingClient | UnnamedClient] = []
        self._outcome = Outcome()

    def run(self) -> Outcome:
        """Fail over so many times, and judge every append since the start each time."""
        with ExitStack() as running:
            running.enter_context(self._pair)
            for node in self._nodes:
                running.enter_context(node)
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
            for number in range(self._rounds):
                what = ORDER[number % len(ORDER)]
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

    async def _round(self, what: Round) -> None:
        try:
            async with asyncio.timeout(ROUND_SECONDS):
                await self._under_load(what)
        except TimeoutError as error:
            tails = "\n".join(node.output_tail() for node in self._nodes)
            raise TimeoutError(f"A round ({what}) was not over after {ROUND_SECONDS} s:\n{tails}") from error
        everything = [operation for client in self._clients for operation in client.operations]
        verdict = await asyncio.to_thread(judge, self._urls, everything, self._chance)
        verdict.add(self._outcome.verdict)
        self._outcome.verdict = verdict

    async def _under_load(self, what: Round) -> None:
        """All clients at work from before the failover until the next one could come."""
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as work:
            for client in self._clients:
                work.create_task(client.work(stop))
            await asyncio.sleep(self._chance.uniform(*BEFORE_SECONDS))
            began = time.monotonic()
            await asyncio.to_thread(self._pair.fail_over, what, self._chance)
            await self._answered.wait()
            await asyncio.sleep(AFTER_SECONDS)
            await asyncio.to_thread(self._pair.attach)
            await asyncio.sleep(AFTER_SECONDS)
            stop.set()
        self._outcome.pauses.append((what, self._answered.longest_pause(began)))
