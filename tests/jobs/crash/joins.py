"""Kills of servers while groups and children end: every join, and every waiting parent, runs exactly once.

Drivers make groups, run their members and their joins, and say everything again until it is answered, by the same key,
claim and token.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from typing import Any, ClassVar

from tests.harness.caller import Body, Line
from tests.harness.crash.run import Client, CrashPlan, Surface
from tests.harness.crash.verdict import Verdict

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


class JoinsUnderKills(Surface):
    """Groups and families of jobs."""

    settings: ClassVar = {"SEMEL_JOBS_MAX_INFLIGHT": "1000"}
    one_in = (2, 8, 20)
    alive_seconds = (0.1, 0.4)
    shows = ("groups and families",)

    def __init__(self, plan: CrashPlan) -> None:
        super().__init__(plan)
        self._drivers = [Driver(f"d{number}", self.ports) for number in range(DRIVERS)]

    def clients(self) -> Sequence[Client]:
        """The drivers."""
        return [driver.work for driver in self._drivers]

    def progress(self) -> int:
        """How many groups and families have ended."""
        return sum(driver.done for driver in self._drivers)

    def is_ready(self) -> bool:
        """At once: what is to be killed is the making of the first ones, too."""
        return True

    def has_shown(self) -> bool:
        """Whether each driver has come to an end of one."""
        return all(driver.done for driver in self._drivers)

    def judge(self, verdict: Verdict) -> None:
        """The drivers know it all."""
        verdict.count("groups and families", self.progress())
        for driver in self._drivers:
            verdict.faults += driver.faults
