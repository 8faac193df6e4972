"""Members of consumer groups while their servers are killed: every event acknowledged, none delivered after its ack.

    make crash SURFACE=groups KILLS=50 STORE=sqlite

Clients submit events; members of a strict and of an unordered group fetch, acknowledge, give back, and now and then
forget what they have fetched, as a process does that dies. Every call is repeated unchanged until it is answered. The
servers are killed at random moments and at the named points of the commit path. What must hold:

- no event whose ack was answered is in a delivery that was asked for later;
- in strict order an event is delivered after an ack was sent for every earlier event of its partition;
- at the end, every committed event was acknowledged in both groups.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from tests.events.group_member import GROUPS
from tests.harness.lives import PointLives
from tests.harness.postgres.shared import fresh_url
from tests.harness.server import RunningServer
from tests.harness.together import faults_of, log_of

PARTITIONS = ("p-0", "p-1", "p-2", "p-3")
GROUP_NAMES = ("strict", "unordered")
LEASE_MS = 1_500
MEMBERS, SUBMITTERS = 3, 2
DRAIN_SECONDS = 120.0
SECONDS_A_KILL = 0.7
FAST_TURNS = 300


class DeliveryRecord(NamedTuple):
    """What a member was delivered, and the number of acks that were sent by then."""

    ids: list[int]
    acks_sent: int


class GroupRecord:
    """What the members of a group know together."""

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.acks_sent: list[int] = []
        self.acked: set[int] = set()
        self.deliveries: list[DeliveryRecord] = []


class GroupCrashRun:
    """One run from start to judgement."""

    def __init__(self, folder: Path, store: str, kills: int, crashes: int, seed: int) -> None:
        self._chance = random.Random(seed)
        self._seed = seed
        self._lives = PointLives(self._chance, (4, 20, 60), first=seed)
        self._faults_planned = ["kill"] * kills + ["crash"] * crashes
        self._servers = self._make_servers(folder, store)
        self._is_over = threading.Event()
        self._is_drained = threading.Event()
        self._guard = threading.Lock()
        self.committed: dict[int, tuple[str, ...]] = {}
        self.groups = {name: GroupRecord() for name in GROUP_NAMES}
        self.faults: list[str] = []
        self.retries = self.fenced = 0

    def _make_servers(self, folder: Path, store: str) -> list[RunningServer]:
        if store == "postgres":
            env = {"SEMEL_STORE": fresh_url(lanes="3")}
            return [RunningServer(folder / f"node-{number}", env=env) for number in range(2)]
        return [RunningServer(folder / "data")]

    def run(self, report: Callable[[int], None] = lambda done: None) -> list[str]:
        """Start, work, kill, drain, judge; returns what was wrong."""
        for server in self._servers:
            server.start()
        try:
            self._create()
            threads = [threading.Thread(target=self._submit, args=(number,)) for number in range(SUBMITTERS)]
            for place, name in enumerate(GROUP_NAMES):
                threads += [
                    threading.Thread(target=self._consume, args=(name, 10 * place + number))
                    for number in range(MEMBERS)
                ]
            for thread in threads:
                thread.start()
            self._break(report)
            self._is_over.set()
            self._drain()
            self._is_drained.set()
            for thread in threads:
                thread.join(60)
            self._judge()
        finally:
            self._is_over.set()
            self._is_drained.set()
            for server in self._servers:
                server.__exit__(None, None, None)
        for server in self._servers:
            self.faults += faults_of(log_of(server))
        if self._lives.missed:
            self.faults.append(f"none died at {self._lives.missed}: nothing was shown about that")
        return self.faults

    def _create(self) -> None:
        with httpx.Client() as http:
            for name in GROUP_NAMES:
                body = {"partitions": list(PARTITIONS), "order": name, "lease_ms": LEASE_MS, "max_deliveries": 0}
                self._call(http, "PUT", f"{GROUPS}/{name}", body)

    def _break(self, report: Callable[[int], None]) -> None:
        self._chance.shuffle(self._faults_planned)
        for number, fault in enumerate(self._faults_planned):
            time.sleep(SECONDS_A_KILL * self._chance.uniform(0.5, 1.5))
            server = self._chance.choice(self._servers)
            server.kill()
            if fault == "crash":
                self._lives.end_next(server)
            self._lives.start_next(server, number)
            report(number + 1)
        time.sleep(SECONDS_A_KILL)

    def _call(self, http: httpx.Client, method: str, path: str, body: Any) -> httpx.Response:
        """Repeat a call unchanged until it is answered."""
        is_first = True
        while True:
            self.retries += not is_first
            is_first = False
            server = random.choice(self._servers)
            try:
                answer = http.request(method, f"{server.url}{path}", json=body, timeout=10)
            except httpx.TransportError:
                time.sleep(0.02)
                continue
            if answer.status_code < 500:
                return answer
            time.sleep(0.02)

    def _submit(self, number: int) -> None:
        chance = random.Random(self._seed * 100 + number)
        with httpx.Client() as http:
            turn = 0
            while not self._is_over.is_set():
                turn += 1
                names = tuple(sorted(chance.sample(PARTITIONS, chance.choice((1, 1, 1, 2)))))
                items = [
                    {"id": f"s{number}-{turn}-{place}", "partitions": names, "event": {"type": "t"}}
                    for place in range(chance.randrange(1, 5))
                ]
                results = self._call(http, "POST", "/v1/events", {"events": items}).json()["results"]
                with self._guard:
                    for result in results:
                        self.committed[result["committed_id"]] = names
                # In a long run the members have to keep up.
                time.sleep(chance.uniform(0.0, 0.03 if turn < FAST_TURNS else 0.3))

    def _consume(self, group: str, number: int) -> None:
        chance = random.Random(self._seed * 1_000 + number)
        record = self.groups[group]
        with httpx.Client() as http:
            turn = 0
            while not self._is_drained.is_set():
                turn += 1
                ask = {"member": f"m{number}", "fetch_id": f"m{number}-{turn}", "batch": 4, "wait_ms": 200}
                with record.guard:
                    acked = set(record.acked)
                answer = self._call(http, "POST", f"{GROUPS}/{group}/fetch", ask)
                if answer.status_code != 200:
                    self.faults.append(f"fetch: {answer.status_code} {answer.text}")
                    return
                body = answer.json()
                ids = [event["committed_id"] for event in body["events"]]
                if not ids:
                    continue
                self._record(group, record, ids, acked)
                if self._is_over.is_set() or chance.random() < 0.85:
                    self._settle(http, group, record, body["lease"], ids, chance)
                # Otherwise the member has forgotten them, as if it had died.

    def _record(self, group: str, record: GroupRecord, ids: list[int], acked: set[int]) -> None:
        again = acked & set(ids)
        if again:
            self.faults.append(f"{group}: {sorted(again)} were delivered after their ack was answered")
        with record.guard:
            record.deliveries.append(DeliveryRecord(ids, len(record.acks_sent)))

    def _settle(
        self, http: httpx.Client, group: str, record: GroupRecord, lease: str, ids: list[int], chance: random.Random
    ) -> None:
        count = len(ids) if self._is_over.is_set() else chance.randrange(1, len(ids) + 1)
        with record.guard:
            record.acks_sent += ids[:count]
        body = {"lease": lease, "committed_ids": ids[:count]}
        answer = self._call(http, "POST", f"{GROUPS}/{group}/ack", body)
        if answer.status_code == 200:
            with record.guard:
                record.acked.update(ids[:count])
        elif answer.json()["code"] == "lease_ended":
            self.fenced += 1
            return
        else:
            self.faults.append(f"{group}: ack {answer.text}")
        if ids[count:] and chance.random() < 0.5:
            rest = {"lease": lease, "committed_ids": ids[count:]}
            answer = self._call(http, "POST", f"{GROUPS}/{group}/nack", rest)
            if answer.status_code != 200 and answer.json()["code"] != "lease_ended":
                self.faults.append(f"{group}: nack {answer.text}")

    def _left(self) -> dict[str, int]:
        with self._guard:
            wanted = set(self.committed)
        return {name: len(wanted - record.acked) for name, record in self.groups.items() if wanted - record.acked}

    def _drain(self) -> None:
        deadline = time.monotonic() + DRAIN_SECONDS
        while self._left() and time.monotonic() < deadline and not self.faults:
            time.sleep(0.05)

    def _judge(self) -> None:
        if self._left():
            self.faults.append(f"never acknowledged: {self._left()}")
        record = self.groups["strict"]
        of_partition = {
            name: [one for one in sorted(self.committed) if name in self.committed[one]] for name in PARTITIONS
        }
        for delivery in record.deliveries:
            sent = set(record.acks_sent[: delivery.acks_sent]) | set(delivery.ids)
            for one in delivery.ids:
                for name in self.committed.get(one, ()):
                    early = [before for before in of_partition[name] if before < one and before not in sent]
                    if early:
                        self.faults.append(f"strict: {one} of {name} was delivered before {early[:3]}")


def main() -> int:
    """Run and print; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    asked = parser.parse_args()
    crashes = asked.kills // 2

    def report(done: int) -> None:
        sys.stderr.write(f"\rkilled {done} of {asked.kills}")

    with tempfile.TemporaryDirectory() as folder:
        run = GroupCrashRun(Path(folder), asked.store, asked.kills - crashes, crashes, asked.seed)
        faults = run.run(report)
    deliveries = sum(len(record.deliveries) for record in run.groups.values())
    sys.stdout.write(
        f"\n{asked.kills} kills on {asked.store}: {len(run.committed)} events, {deliveries} deliveries, "
        f"{run.retries} calls repeated, {run.fenced} acks fenced: {len(faults)} faults\n"
    )
    for fault in faults[:20]:
        sys.stdout.write(f"  {fault}\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
