"""Kill servers with SIGKILL under a load of pushes and pulls, again and again, and check what became of everything.

Every other time the next life ends by itself, at a named point of the commit path, each in turn. `make crash
SURFACE=deltas` does as many as you like.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from semel.engine.clock import SystemWorld
from semel.engine.reading import Reading
from semel.engine.soft_changes import SoftChanges
from semel.kernel.clock import Now
from semel.store.open import open_read_only
from semel.surfaces.deltas import reading
from semel.surfaces.deltas.model import Delta
from semel.surfaces.schema import MIGRATIONS, TABLES
from tests.deltas.crash.parties import FLEET, LOAD, Client, Party, Reader, Writer
from tests.deltas.crash.verdict import Gateway, Verdict, judge_batches, judge_gateway, judge_numbers, judge_rows
from tests.deltas.pushed_log import delta_log
from tests.harness.lives import PointLives
from tests.harness.postgres.shared import fresh_url
from tests.harness.server import RunningServer
from tests.harness.together import eventually, faults_of, log_of

WRITERS, CLIENTS = 4, 3
QUIET_ROUNDS = 3
ALIVE_SECONDS = (0.15, 0.6)
EVERYTHING = 10_000_000


@dataclass(frozen=True)
class Plan:
    """What happens."""

    store: str = "sqlite"
    kills: int = 10
    nodes: int = 1


class CrashRun:
    """One store, many lives."""

    def __init__(self, folder: Path, plan: Plan, seed: int, report: Callable[[int], None] = lambda done: None) -> None:
        self._plan = plan
        self._seed = seed
        self._chance = random.Random(seed)
        self._lives = PointLives(self._chance, (4, 12, 40), first=seed)
        self._report = report
        self._quiet = 0
        url = fresh_url(lanes="2") if plan.store == "postgres" else ""
        self._servers = [
            RunningServer(folder / f"node-{number}", env={"SEMEL_STORE": url}) for number in range(plan.nodes)
        ]
        self._url = url or f"sqlite:{folder / 'node-0'}"
        self._ports = [server.port for server in self._servers]
        self._writers = [Writer(f"w{number}", self._ports, seed) for number in range(WRITERS)]
        self._clients = [Client(f"c{number}", self._ports, seed) for number in range(CLIENTS)]
        self._readers = {name: Reader(f"reader of {name}", name, self._ports, seed) for name in (LOAD, FLEET)}
        self._fresh = {name: Reader(f"late in {name}", name, self._ports, seed) for name in (LOAD, FLEET)}

    def run(self) -> Verdict:
        """Start, kill, mend, judge."""
        with ExitStack() as running:
            for server in self._servers:
                running.enter_context(server)
            self._under_load()
            for server in self._servers:
                server.kill()
                server.start()
            self._come_to_rest()
            verdict = self._judge()
        for server in self._servers:
            faults = faults_of(log_of(server))
            verdict.require(not faults, f"{faults[:3]} in {server.output_tail()}")
        verdict.require(not self._lives.missed, f"no server died at {self._lives.missed}: nothing was shown about that")
        return verdict

    @property
    def _parties(self) -> list[Party]:
        return [*self._writers, *self._clients, *self._readers.values(), *self._fresh.values()]

    def _under_load(self) -> None:
        stop = threading.Event()
        at_work = [*self._writers, *self._clients, *self._readers.values()]
        with ThreadPoolExecutor(len(at_work)) as pool:
            loads = [pool.submit(party.work, stop) for party in at_work]
            try:
                eventually(lambda: self._progress() > 0, "the load begins")
                for done in range(self._plan.kills):
                    before = self._progress()
                    self._one_kill(done)
                    self._quiet += self._progress() == before
                    self._report(done + 1)
                # A machine that stood still all the while has shown nothing so far.
                eventually(self._has_shown_something, "a batch is taken, and another one refused")
            finally:
                stop.set()
            for load in loads:
                load.result()

    def _progress(self) -> int:
        """How many pushes have been answered."""
        return sum(given.is_push for party in self._parties for given in tuple(party.given))

    def _has_shown_something(self) -> bool:
        """Whether a sound batch and a poisoned one have been answered."""
        batches = [batch for writer in self._writers for batch in tuple(writer.batches)]
        return {batch.is_poisoned for batch in batches if batch.answers} == {False, True}

    def _one_kill(self, number: int) -> None:
        """Killed from outside; every other time the next life then dies by itself, at a named point."""
        time.sleep(self._chance.uniform(*ALIVE_SECONDS))
        server = self._chance.choice(self._servers)
        server.kill()
        if number % 2 == 0:
            self._lives.end_next(server)
        self._lives.start_next(server, number)

    def _come_to_rest(self) -> None:
        """Whoever has a database or follows the log gets all there is; so does somebody who comes new."""
        for writer in self._writers:
            writer.repeat_all()
        for _ in range(QUIET_ROUNDS):
            for client in self._clients:
                client.come_to_rest()
        for reader in (*self._readers.values(), *self._fresh.values()):
            reader.catch_up()

    def _judge(self) -> Verdict:
        verdict = Verdict()
        verdict.quiet = self._quiet
        verdict.lost_answers = sum(party.lost for party in self._parties)
        batches = [batch for writer in self._writers for batch in writer.batches]
        pushed = {delta.id: delta for batch in batches for delta in batch.deltas}
        pushed |= {delta.id: delta for client in self._clients for delta in client.written}
        load, fleet = self._gateway(LOAD), self._gateway(FLEET)
        judge_batches(verdict, load.log, batches)
        judge_numbers(verdict, [given for party in self._parties for given in party.given])
        for gateway in (load, fleet):
            judge_gateway(verdict, gateway)
        judge_rows(verdict, load, pushed)
        self._judge_clients(verdict, fleet, pushed)
        for party in self._parties:
            verdict.faults += party.faults[:10]
        return verdict

    def _judge_clients(self, verdict: Verdict, fleet: Gateway, pushed: dict[bytes, Delta]) -> None:
        """What they have written is there, and each of them holds what it comes to."""
        written = {delta.id for client in self._clients for delta in client.written}
        there = [one.id for one in fleet.log]
        verdict.require(len(there) == len(set(there)), f"{FLEET}: a delta is in the log twice")
        verdict.require(set(there) == written, f"{FLEET}: {len(written - set(there))} deltas of clients are not there")
        folded = judge_rows(verdict, fleet, pushed)
        wanted = {row: state.columns for (_, row), state in folded.items() if state.is_live}
        for client in self._clients:
            held = {
                row: {name: value for name, value in columns.items() if value != "null"}
                for row, columns in client.replica.rows.items()
            }
            wrong = sorted(row for row in {*held, *wanted} if held.get(row) != wanted.get(row))
            verdict.require(not wrong, f"{client.client} has other rows: {wrong[:3]}")

    def _gateway(self, name: str) -> Gateway:
        with self._reading() as look:
            rows, _ = reading.merged_rows(look, name, None, EVERYTHING)
            log = delta_log(look, name, 0, EVERYTHING)
            gauges = reading.gauges(look, name)
        entries = {f"reader of {name}": self._readers[name].entries}
        return Gateway(name, log, rows, gauges, self._fresh[name].entries, entries)

    @contextmanager
    def _reading(self) -> Iterator[Reading]:
        with open_read_only(self._url, TABLES, MIGRATIONS, SystemWorld().wall_ms) as snapshot:
            now_ms = snapshot.now_ms
            yield Reading(snapshot, SoftChanges(), Now(now_ms, now_ms, now_ms, now_ms))
