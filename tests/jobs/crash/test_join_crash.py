"""`kill -9` of servers while groups and children end: every join, and every waiting parent, runs exactly once.

Drivers make groups, run their members and their joins, and say everything again until it is answered, by the same key,
claim and token. Every other life of a server dies at a named point of the commit path, each in turn.
"""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from semel.engine.engine import POINTS
from tests.harness.caller import Body, Line
from tests.harness.lives import PointLives
from tests.harness.postgres.shared import fresh_url
from tests.harness.server import RunningServer
from tests.harness.together import faults_of, log_of

KILLS = len(POINTS) * 2
DRIVERS = 3
MEMBERS = 3
PATH = "/v1/jobs"


class Driver:
    """Makes one group or family after another, and holds everything against what must be."""

    def __init__(self, name: str, ports: list[int]) -> None:
        self._name = name
        self._chance = random.Random(name)
        self._line = Line(ports, self._chance)
        self._number = 0
        self.faults: list[str] = []
        self.done = 0

    def work(self, stop: threading.Event) -> None:
        """Until it is told to stop."""
        while not stop.is_set():
            self._chance.choice((self._group, self._family))()
            self.done += 1
        self._line.close()

    def _group(self) -> None:
        self._number += 1
        queue = f"{self._name}-{self._number}"
        fields: Body = {"kind": "join", "queue": f"{queue}-join", "idempotency_key": queue, "lease_sec": 600}
        group = self._say("", fields | {"join": {"size": MEMBERS}})["job_id"]
        for number in range(MEMBERS):
            member = {"kind": "m", "queue": queue, "group": group, "idempotency_key": f"{queue}/{number}"}
            self._say("", member | {"lease_sec": 600})
        self._run_all(queue)
        self._run_waiter(f"{queue}-join", group, epoch=1)

    def _family(self) -> None:
        self._number += 1
        queue = f"{self._name}-{self._number}"
        self._say("", {"kind": "p", "queue": f"{queue}-join", "idempotency_key": queue, "lease_sec": 600})
        [parent] = self._claim(f"{queue}-join", "first", 1)
        under = {"job_id": parent["job_id"], "lease_token": parent["lease_token"]}
        for number in range(MEMBERS):
            self._say("", {"kind": "c", "queue": queue, "parent": under | {"name": f"c{number}"}, "lease_sec": 600})
        self._say(f"/{parent['job_id']}/defer", {"lease_token": parent["lease_token"], "wait_children": True})
        self._run_all(queue)
        self._run_waiter(f"{queue}-join", parent["job_id"], epoch=2)

    def _run_all(self, queue: str) -> None:
        jobs = self._claim(queue, "members", MEMBERS)
        self._require(len({job["job_id"] for job in jobs}) == MEMBERS, f"{queue}: {len(jobs)} members")
        early = self._claim(f"{queue}-join", "early", 0)
        self._require(not early, f"{queue}: the join ran before its members")
        for job in jobs:
            call, more = self._chance.choice(
                (("complete", {"result": 1}), ("fail", {"retryable": False, "error": {"code": "c", "message": "m"}}))
            )
            self._say(f"/{job['job_id']}/{call}", {"lease_token": job["lease_token"]} | more)

    def _run_waiter(self, queue: str, job_id: str, epoch: int) -> None:
        jobs = self._claim(queue, "last", 1)
        self._require([(job["job_id"], job["epoch"]) for job in jobs] == [(job_id, epoch)], f"{queue}: {jobs}")
        members = self._line.insist("GET", f"{PATH}/{job_id}/members").body["members"]
        states = [member["state"] for member in members]
        self._require(len(states) == MEMBERS and set(states) <= {"completed", "failed"}, f"{queue}: {members}")
        for job in jobs:
            self._say(f"/{job['job_id']}/complete", {"lease_token": job["lease_token"], "result": 1})
        again = self._claim(queue, "again", 0)
        self._require(not again, f"{queue} ran again: {again}")

    def _claim(self, queue: str, name: str, count: int) -> list[Body]:
        """A named claim, until it has as many jobs; its name makes a repeated one the same."""
        body = {"worker_id": self._name, "queues": [queue], "max": MEMBERS, "claim_id": name}
        jobs: list[Body] = []
        for _ in range(200):
            jobs = self._say("/claim", body)["jobs"]
            if len(jobs) >= count:
                return jobs
            time.sleep(0.01)
        raise AssertionError(f"{queue}: {name} got {jobs}")

    def _say(self, path: str, body: Any) -> Body:
        told = self._line.insist("POST", PATH + path, body)
        self._require(told.status == 200, f"{path} {body} was answered {told.status} {told.body}")
        return told.body

    def _require(self, truth: bool, what: str) -> None:
        if not truth:
            self.faults.append(what)


def under_kills(servers: list[RunningServer], lives: PointLives, drivers: list[Driver]) -> None:
    """Kill while the drivers work."""
    chance, stop = random.Random(7), threading.Event()
    with ThreadPoolExecutor(len(drivers)) as pool:
        loads = [pool.submit(driver.work, stop) for driver in drivers]
        try:
            for number in range(KILLS):
                time.sleep(chance.uniform(0.1, 0.4))
                server = chance.choice(servers)
                server.kill()
                if number % 2:
                    lives.end_next(server)
                lives.start_next(server, number)
        finally:
            stop.set()
        for load in loads:
            load.result()


@pytest.mark.parametrize(("store", "nodes"), [("sqlite", 1), ("postgres", 2)])
@pytest.mark.timeout(300)
def test_every_join_and_every_parent_that_waits_runs_once(tmp_path: Path, store: str, nodes: int) -> None:
    env = {"SEMEL_STORE": fresh_url(lanes="2") if store == "postgres" else "", "SEMEL_JOBS_MAX_INFLIGHT": "1000"}
    servers = [RunningServer(tmp_path / f"node-{number}", env=env) for number in range(nodes)]
    lives = PointLives(random.Random(3), (2, 8, 20))
    drivers = [Driver(f"d{number}", [server.port for server in servers]) for number in range(DRIVERS)]
    with ExitStack() as running:
        for server in servers:
            running.enter_context(server)
        under_kills(servers, lives, drivers)
    assert [fault for driver in drivers for fault in driver.faults] == []
    assert all(driver.done for driver in drivers), "nothing was run: nothing was shown"
    assert not lives.missed
    assert [faults_of(log_of(server)) for server in servers] == [[]] * nodes
