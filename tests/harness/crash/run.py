"""One run: clients that never give up, lives that end under them, and the verdict.

A surface says which servers there are, who uses them, how lives end, and what must be true of what was sent and
answered. Everything else is here: the load begins before the first life ends and goes on behind the last, a client that
breaks breaks the run, and a run in which nothing was shown has failed.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

from tests.harness.crash.verdict import Verdict
from tests.harness.crash.ways import Kills, Way
from tests.harness.lives import PointLives
from tests.harness.postgres.shared import fresh_url
from tests.harness.server import RunningServer
from tests.harness.together import eventually, faults_of, log_of

SQLITE, POSTGRES = "sqlite", "postgres"
BEGIN_SECONDS = 60.0
END_SECONDS = 240.0
"""Clients that have no answer after this time will never have one."""
IDLE = "kills of an idle server"
Client = Callable[[threading.Event], None]
"""Works until it is told to stop; in a thread of its own."""


class CrashPlan(NamedTuple):
    """What is asked of a run."""

    folder: Path
    kills: int
    store: str = SQLITE
    seed: int = 1
    report: Callable[[int, str], None] = lambda done, what: None
    options: argparse.Namespace = argparse.Namespace()
    """What `Surface.add_options` has added."""


class Surface:
    """What a surface gives to the harness."""

    kills = 100
    """How many, if nobody says."""
    stores: Sequence[str] = (SQLITE, POSTGRES)
    """What it can run on; the first if nobody says."""
    nodes = 2
    """How many servers there are over a PostgreSQL."""
    lanes = "2"
    settings: ClassVar[Mapping[str, str]] = {}
    one_in: Sequence[int] = (4, 20, 100)
    """Of so many passes of a point one is deadly, in a life that is to end there."""
    alive_seconds = (0.15, 0.6)
    long_seconds = 0.0
    ends_a_round = 0
    """After how many ends of lives the load rests and everything is judged; 0 is once, in the end."""
    has_quiet_logs = True
    """Whether the servers have nothing to complain of."""
    shows: Sequence[str] = ()
    """Counts of the verdict that may not be 0."""
    shows_alone: Sequence[str] = ()
    """The same, where there is one server: with several, clients may never meet the one that dies."""

    def __init__(self, plan: CrashPlan) -> None:
        self.plan = plan
        self.seed = plan.seed
        self.chance = random.Random(plan.seed)
        self.urls = self.make_urls()
        """Those of the store, for each node."""
        folders = [plan.folder / f"node-{number}" for number in range(len(self.urls))]
        self.servers = [
            RunningServer(folder, env={**self.settings, "SEMEL_STORE": url})
            for folder, url in zip(folders, self.urls, strict=True)
        ]
        self.ports = [server.port for server in self.servers]

    def make_urls(self) -> Sequence[str]:
        """One server on SQLite, or several over one PostgreSQL."""
        if self.plan.store == POSTGRES:
            return [fresh_url(lanes=self.lanes)] * self.nodes
        return [f"sqlite:{self.plan.folder / 'node-0'}"]

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """Options of the command besides those that all have."""

    @property
    def running(self) -> AbstractContextManager[Any]:
        """What runs beneath the servers."""
        return nullcontext()

    def way(self) -> Way:
        """How lives end."""
        lives = PointLives(self.chance, self.one_in, first=self.seed)
        return Kills(self.servers, self.chance, lives, self.alive_seconds, self.long_seconds)

    def turns(self) -> int:
        """How often the way is asked to end lives: once for each kill, unless it ends several at once."""
        return self.plan.kills

    def prepare(self) -> None:
        """Before the load."""

    def clients(self) -> Sequence[Client]:
        """Who uses the servers."""
        return ()

    def progress(self) -> int:
        """How much has been answered."""
        return 0

    def is_ready(self) -> bool:
        """Whether the load has begun: a kill before that shows nothing."""
        return self.progress() > 0

    def has_shown(self) -> bool:
        """Whether everything has happened that the load must do; it goes on until then."""
        return True

    def judge(self, verdict: Verdict) -> None:
        """Hold what was answered against what is there; the servers run."""

    def close(self) -> None:
        """In the end."""

    def lines(self) -> Iterable[str]:
        """What the command prints below the verdict."""
        return ()

    def begin_again(self) -> None:
        """Kill every server and start it: what it then says it has from the store alone."""
        for server in self.servers:
            server.kill()
            server.start()


class Stop(Protocol):
    """When coroutines end."""

    def is_set(self) -> bool:
        """Whether it is time."""


class CoroutineClient(Protocol):
    """A client that is a coroutine."""

    async def work(self, stop: Stop) -> None:
        """Work until told to stop."""


class AsyncSurface(Surface):
    """A surface whose clients are coroutines of one event loop, which lasts as long as the run."""

    def __init__(self, plan: CrashPlan) -> None:
        super().__init__(plan)
        self.runner = asyncio.Runner()

    def coroutines(self) -> Sequence[CoroutineClient]:
        """Who uses the servers."""
        raise NotImplementedError

    def clients(self) -> Sequence[Client]:
        """One thread with the loop."""
        return [lambda stop: self.runner.run(self._all(stop))]

    async def _all(self, stop: Stop) -> None:
        async with asyncio.TaskGroup() as group:
            for client in self.coroutines():
                group.create_task(client.work(stop))

    async def hang_up(self) -> None:
        """Close connections."""

    def close(self) -> None:
        """Close connections and the loop."""
        self.runner.run(self.hang_up())
        self.runner.close()


class CrashRun:
    """One run of a surface from start to judgement."""

    def __init__(self, surface: Surface) -> None:
        self._surface = surface
        self.verdict = Verdict()

    def run(self) -> Verdict:
        """Start, load, end lives, judge."""
        surface, turns = self._surface, self._surface.turns()
        try:
            with ExitStack() as running:
                running.enter_context(surface.running)
                for server in surface.servers:
                    running.enter_context(server)
                running.callback(surface.close)
                surface.prepare()
                way = surface.way()
                step = surface.ends_a_round or max(1, turns)
                for first in range(0, turns, step):
                    self._under_load(way, range(first, min(first + step, turns)))
                    surface.judge(self.verdict)
        except BaseException as error:
            for server in surface.servers:
                error.add_note(server.output_tail())
            raise
        way.judge(self.verdict)
        for server in surface.servers if surface.has_quiet_logs else ():
            faults = faults_of(log_of(server))
            self.verdict.require(not faults, f"{faults[:3]} in {server.output_tail()}")
        self.verdict.require_shown(surface.shows)
        self.verdict.require_shown(surface.shows_alone if len(surface.servers) == 1 else ())
        return self.verdict

    def _under_load(self, way: Way, numbers: range) -> None:
        surface, stop, broken = self._surface, threading.Event(), list[BaseException]()

        def live(client: Client) -> None:
            try:
                client(stop)
            except BaseException as error:  # noqa: BLE001 - raised below, in the thread of the run
                broken.append(error)

        threads = [threading.Thread(target=live, args=(client,), daemon=True) for client in surface.clients()]
        for thread in threads:
            thread.start()
        try:
            eventually(lambda: bool(broken) or not threads or surface.is_ready(), "the load begins", BEGIN_SECONDS)
            for number in numbers:
                before = surface.progress()
                told = way.end(number)
                self.verdict.counts[IDLE] += bool(threads) and surface.progress() == before
                surface.plan.report(number + 1, told)
                if broken:
                    break
            eventually(lambda: bool(broken) or surface.has_shown(), "the load shows what it is to show", BEGIN_SECONDS)
        finally:
            stop.set()
        deadline = time.monotonic() + END_SECONDS
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if broken:
            raise broken[0]
        if any(thread.is_alive() for thread in threads):
            raise TimeoutError(f"clients have had no answer for {END_SECONDS} s")


def check_lives(kind: type[Surface], plan: CrashPlan) -> None:
    """A run without a fault; for tests."""
    verdict = CrashRun(kind(plan)).run()
    assert not verdict.faults, "\n".join([str(verdict), *verdict.faults])
