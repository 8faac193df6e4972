"""Kills of servers under a load of pushes and pulls: what became of everything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from semel.engine.clock import SystemWorld
from semel.engine.reading import Reading
from semel.engine.soft_changes import SoftChanges
from semel.kernel.clock import Now
from semel.store.open import open_read_only
from semel.surfaces.deltas import reading
from semel.surfaces.deltas.model import Delta
from semel.surfaces.schema import MIGRATIONS, TABLES
from tests.deltas.crash.parties import FLEET, LOAD, Party, Reader, Writer
from tests.deltas.crash.parties import Client as DatabaseClient
from tests.deltas.crash.verdict import Gateway, judge_batches, judge_gateway, judge_numbers, judge_rows
from tests.deltas.pushed_log import delta_log
from tests.harness.crash.run import Client, CrashPlan, Surface
from tests.harness.crash.verdict import Verdict

WRITERS, CLIENTS = 4, 3
QUIET_ROUNDS = 3
EVERYTHING = 10_000_000
LOST = "answers lost"


class DeltasUnderKills(Surface):
    """Every acknowledged delta is there once, and whoever follows a gateway holds what its log comes to."""

    one_in = (4, 12, 40)
    shows = ("deltas", "refusals")
    shows_alone = (LOST,)

    def __init__(self, plan: CrashPlan) -> None:
        super().__init__(plan)
        ports, seed = self.ports, plan.seed
        self._writers = [Writer(f"w{number}", ports, seed) for number in range(WRITERS)]
        self._clients = [DatabaseClient(f"c{number}", ports, seed) for number in range(CLIENTS)]
        self._readers = {name: Reader(f"reader of {name}", name, ports, seed) for name in (LOAD, FLEET)}
        self._fresh = {name: Reader(f"late in {name}", name, ports, seed) for name in (LOAD, FLEET)}

    @property
    def _parties(self) -> list[Party]:
        return [*self._writers, *self._clients, *self._readers.values(), *self._fresh.values()]

    def clients(self) -> Sequence[Client]:
        """Everybody but those who come when all is over."""
        return [party.work for party in (*self._writers, *self._clients, *self._readers.values())]

    def progress(self) -> int:
        """How many pushes have been answered."""
        return sum(given.is_push for party in self._parties for given in tuple(party.given))

    def has_shown(self) -> bool:
        """Whether a sound batch and a poisoned one have been answered."""
        batches = [batch for writer in self._writers for batch in tuple(writer.batches)]
        return {batch.is_poisoned for batch in batches if batch.answers} == {False, True}

    def _come_to_rest(self) -> None:
        """Whoever has a database or follows the log gets all there is; so does somebody who comes new."""
        for writer in self._writers:
            writer.repeat_all()
        for _ in range(QUIET_ROUNDS):
            for client in self._clients:
                client.come_to_rest()
        for reader in (*self._readers.values(), *self._fresh.values()):
            reader.catch_up()

    def judge(self, verdict: Verdict) -> None:
        """Read everything, of servers that have seen nobody but the log."""
        self.begin_again()
        self._come_to_rest()
        verdict.count(LOST, sum(party.lost for party in self._parties))
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
        with open_read_only(self.urls[0], TABLES, MIGRATIONS, SystemWorld().wall_ms) as snapshot:
            now_ms = snapshot.now_ms
            yield Reading(snapshot, SoftChanges(), Now(now_ms, now_ms, now_ms, now_ms))
