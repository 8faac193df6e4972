"""A whole run: real servers, a cast of clients, faults at random moments, and the judgement at the end.

Everything that chance decides comes from one seed; the interleaving of clients and servers does not, so a seed names a
scenario, not a schedule. At the end every draft is sent until it is answered, every follower must get all that it is
owed by what is pushed to it, without asking again, and every acknowledged draft is sent once more.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path

import httpx

from tests.events.model.cast import NAMES, Cast, whole_cast
from tests.events.model.drafts import Author
from tests.events.model.model import Draft, Log, Model
from tests.events.model.peers import World, Writer
from tests.events.model.visitors import address, final_log
from tests.events.shapes import SEED, is_shaped
from tests.harness.lives import PointLives
from tests.harness.postgres.shared import fresh_url
from tests.harness.server import RunningServer
from tests.harness.together import faults_of, log_of

DRAIN_SECONDS = 60.0
DELIVERY_SECONDS = 25.0
"""Less than the time after which a server looks by itself."""
SHOWN_SECONDS = 60.0
SETTINGS = {"SEMEL_EVENTS_BUFFER_BYTES": "8192", "SEMEL_SHUTDOWN_MS": "30000"}
"""A follower that dawdles is refilled from the log. That clients stand still while a server stops is no fault of it."""

_is_result = is_shaped(SEED["submit_events_result"])


@dataclass(frozen=True)
class Plan:
    """What happens to the servers."""

    store: str = "sqlite"
    seconds: float = 3.0
    kills: int = 0
    stops: int = 0
    crashes: int = 0
    """Lives that end by themselves at a named point of the commit path."""
    down_seconds: tuple[float, float] = (0.0, 0.3)


@dataclass(slots=True)
class Verdict:
    """What was found, and from how much."""

    events: int = 0
    answers: int = 0
    retries: int = 0
    conflicts: int = 0
    conditions: int = 0
    """Drafts that were committed although, or refused because, they expect a watermark."""
    mismatches: int = 0
    pages: int = 0
    broadcasts: int = 0
    deaths: int = 0
    faults: list[str] = field(default_factory=list)

    @property
    def seen(self) -> Counter[str]:
        """How often each thing was seen."""
        return Counter({one.name: getattr(self, one.name) for one in fields(self) if one.name != "faults"})

    @property
    def has_shown_all(self) -> bool:
        """Whether everything has happened that a whole cast does."""
        has_conditions = self.conditions > self.mismatches > 0
        return has_conditions and all((self.answers, self.retries, self.conflicts, self.pages, self.broadcasts))

    def __str__(self) -> str:
        return (
            f"{self.events} events, {self.answers} acknowledged, {self.retries} sent again, {self.conflicts} conflicts"
            f", {self.mismatches} of {self.conditions} expected watermarks missed, {self.pages} pages"
            f", {self.broadcasts} broadcasts, {self.deaths} restarts: {len(self.faults)} faults"
        )


class Simulation:
    """One run from start to judgement."""

    def __init__(
        self,
        folder: Path,
        plan: Plan,
        seed: int,
        cast: Callable[[Cast], None] = whole_cast,
        report: Callable[[int], None] = lambda deaths: None,
        has_shown: Callable[[Verdict], bool] = lambda verdict: verdict.retries > 0,
    ) -> None:
        self._plan = plan
        self._chance = random.Random(seed)
        self._lives = PointLives(self._chance, (4, 20, 60), first=seed)
        self._report = report
        self._has_shown = has_shown
        self._model = Model()
        self._servers = self._make_servers(folder)
        self._run = f"r{seed}"
        self._seed = seed
        self._make_cast = cast
        self._verdict = Verdict()

    def run(self) -> Verdict:
        """Start, work, break, mend, judge."""
        with ExitStack() as running:
            for server in self._servers:
                running.enter_context(server)
            asyncio.run(self._all())
        for server in self._servers:
            self._check_output(server)
        missed = self._lives.missed
        self._model.require(not missed, "server", f"none died at {missed}: nothing was shown about that")
        self._verdict.faults = self._model.faults
        return self._verdict

    def _make_servers(self, folder: Path) -> list[RunningServer]:
        if self._plan.store == "postgres":
            env = SETTINGS | {"SEMEL_STORE": fresh_url(lanes="3")}
            return [RunningServer(folder / f"node-{number}", env=env) for number in range(2)]
        store = {"SEMEL_STORE": "memory:"} if self._plan.store == "memory" else {}
        return [RunningServer(folder / "data", env=SETTINGS | store)]

    async def _all(self) -> None:
        world = World(self._model, [server.port for server in self._servers], NAMES, self._run)
        cast = Cast(world, self._seed)
        self._make_cast(cast)
        self._living = living = [asyncio.create_task(work) for work in (*cast.lives(), self._race(world, cast.writers))]
        try:
            await self._break_and_mend()
            await self._until_shown()
            world.is_over.set()
            waiting = partial(_waiting, cast.writers)
            await self._until_none(waiting, DRAIN_SECONDS, "drafts without an answer")
            world.is_calm.set()
            log = await final_log(world.ports, self._model, NAMES)
            await self._until_none(partial(cast.missing, log), DELIVERY_SECONDS, "not delivered")
            await self._send_again(world, log)
        finally:
            for task in living:
                task.cancel()
            for ended in await asyncio.gather(*living, return_exceptions=True):
                if isinstance(ended, Exception):
                    raise ended
        self._model.judge(log)
        self._tally().events = len(log.entries)

    async def _break_and_mend(self) -> None:
        """The faults, spread over the time of the run."""
        plan = self._plan
        faults = ["kill"] * plan.kills + ["stop"] * plan.stops + ["crash"] * plan.crashes
        self._chance.shuffle(faults)
        pause = plan.seconds / (len(faults) + 1)
        for fault in faults:
            await asyncio.sleep(pause * self._chance.uniform(0.5, 1.5))
            await asyncio.to_thread(self._one_fault, fault, self._chance.choice(self._servers))
            self._verdict.deaths += 1
            self._report(self._verdict.deaths)
        await asyncio.sleep(pause)

    async def _until_shown(self) -> None:
        """On a slow machine it takes longer until a run has shown what it is there to show."""
        deadline = time.monotonic() + SHOWN_SECONDS
        while not self._has_shown(self._tally()):
            if time.monotonic() > deadline:
                return
            await asyncio.sleep(0.05)

    def _one_fault(self, fault: str, server: RunningServer) -> None:
        if fault == "stop":
            code = server.stop()
            self._model.require(code == 0, "server", f"stopped with the exit code {code}")
        else:
            server.kill()
        if fault == "crash":
            self._lives.end_next(server)
        time.sleep(self._chance.uniform(*self._plan.down_seconds))
        self._lives.start_next(server, self._verdict.deaths)

    async def _race(self, world: World, writers: Sequence[Writer]) -> None:
        """Give one new id to several clients at once: the same content to all, or another to one of them."""
        chance = random.Random(self._seed + 1)
        author = Author(chance, NAMES, self._run)
        await asyncio.sleep(chance.uniform(0.05, 0.3))
        while not world.is_over.is_set():
            racers = chance.sample(list(writers), 3)
            project = next((writer.project for writer in racers if writer.project), "")
            draft = author.draft("", project)
            able = [writer for writer in racers if writer.project in ("", project)]
            for place, writer in enumerate(able):
                differs = place == 0 and chance.random() < 0.3
                same = Draft(draft.id, draft.partitions, draft.event)
                writer.outbox.add(author.conflicting(draft) if differs else same)
            await asyncio.sleep(chance.uniform(0.05, 0.3))

    async def _until_none(
        self, look: Callable[[], Mapping[str, Collection[object]]], seconds: float, what: str
    ) -> None:
        """Everyone who lacks something must get some of it in this time; how long all takes is up to the machine."""
        least: dict[str, tuple[int, float]] = {}
        while found := look():
            if any(task.done() and not task.cancelled() and task.exception() for task in self._living):
                return None  # it is raised where the tasks are gathered
            now = time.monotonic()
            for name, lacking in found.items():
                count, at = least.get(name, (len(lacking), now))
                least[name] = (len(lacking), now) if len(lacking) < count else (count, at)
                if now - least[name][1] > seconds:
                    return self._model.blame("end", f"{what} after {seconds} s: {found}")
            await asyncio.sleep(0.02)
        return None

    async def _send_again(self, world: World, log: Log) -> None:
        """Every acknowledged draft once more, from a client that nobody knows: the same answers, and nothing new."""
        drafts = list({draft.id: draft for draft in self._model.drafts if _won(draft, log)}.values())
        async with httpx.AsyncClient(timeout=60) as http:
            for start in range(0, len(drafts), 100):
                batch = drafts[start : start + 100]
                items = [{"id": one.id, "partitions": list(one.partitions), "event": one.event} for one in batch]
                answer = await http.post(address(world.ports[0]), json={"client_id": "later", "events": items})
                if answer.status_code != httpx.codes.OK or not _is_result(answer.json()):
                    return self._model.blame("later", f"{answer.status_code} {answer.text[:500]}")
                for draft, result in zip(batch, answer.json()["results"], strict=True):
                    place = result.get("committed_id"), result.get("status_updated_at")
                    expected = log.by_id[draft.id].committed_id, log.by_id[draft.id].time
                    self._model.require(place == expected, "later", f"{result}, first {expected}")
            for server in self._servers:
                await self._check_counts(http, server)
        again = await final_log(world.ports, self._model, NAMES)
        return self._model.require(again.entries == log.entries, "later", "the log has changed")

    async def _check_counts(self, http: httpx.AsyncClient, server: RunningServer) -> None:
        counts = (await http.get(f"{server.url}/metrics")).json()
        wrong = {name: n for name, n in counts.items() if n and ("status=500" in name or "engine_faults" in name)}
        self._model.require(not wrong, server.url, f"counted {wrong}")

    def _check_output(self, server: RunningServer) -> None:
        faults = faults_of(log_of(server))
        self._model.require(not faults, server.url, f"{faults[:3]} in {server.output_tail()}")

    def _tally(self) -> Verdict:
        """What there is so far."""
        model, verdict = self._model, self._verdict
        verdict.answers, verdict.retries, verdict.conflicts = len(model.answers), model.retries, model.conflicts
        verdict.mismatches = len(model.mismatches)
        verdict.conditions = sum(draft.is_settled and draft.if_watermark is not None for draft in model.drafts)
        verdict.pages, verdict.broadcasts = len(model.pages), sum(len(feed.ids) for feed in model.feeds)
        return verdict


def _waiting(writers: Sequence[Writer]) -> dict[str, list[str]]:
    return {writer.name: [draft.id for draft in writer.outbox.waiting] for writer in writers if writer.outbox.waiting}


def _won(draft: Draft, log: Log) -> bool:
    return draft.is_valid and draft.id in log.by_id and draft.content == log.by_id[draft.id].content
