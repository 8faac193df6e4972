"""`kill -9` of servers and workers under load: a key has one job, nothing acknowledged is missing, a job ends once.

A short run in every test run; `make crash SURFACE=jobs` kills as often as you like. The last tests show that the
verdict finds what it is there to find.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.harness.caller import Body, Told
from tests.harness.crash.run import CrashPlan, check_lives
from tests.harness.crash.verdict import Verdict
from tests.harness.crash.ways import Outage
from tests.jobs.crash.journal import LONG
from tests.jobs.crash.run import JobsUnderKills
from tests.jobs.crash.submitter import LONG_LEASE_SEC, Order
from tests.jobs.crash.verdict import Books, judge_jobs


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_no_key_has_two_jobs_and_every_job_ends_once(tmp_path: Path, store: str) -> None:
    check_lives(JobsUnderKills, CrashPlan(tmp_path, 2, store, seed=5))


# -- The verdict itself ------------------------------------------------------------------------------------------------


class Scene:
    """A run of one job that went well: claimed twice, completed by the second holder."""

    def __init__(self) -> None:
        sha = {"result_sha256": "s"}
        self.job: Body = {"job_id": "j", "params": {"order": "o"}, "state": "completed", "status": "completed"}
        self.job |= {"attempt": 2, "max_attempts": 2, "epoch": 2, "deferrals": 0} | sha
        self.job["end"] = {"ok": True, "result": "good", "integrity": {"sha256": "s"}}
        first: Body = {"job_id": "j", "request_id": "r", "dedup": False, "status": "accepted", "state": "queued"}
        last = first | {"dedup": True, "status": "completed", "state": "completed"} | sha
        self.order = Order("o", {}, [first, last])
        self.ids, self.dead = ["j"], set[str]()
        self.metrics: Body = {"queue_depth": 0, "inflight": 0, "idempotency_store_size": 1, "dlq_size": 0}
        self.lines = [
            self.claimed("w1", 1),
            self.claimed("w2", 2),
            self.said("sends", 1, "complete", "late"),
            self.said("told", 1, "complete", "late", status=409, body={"error": "lease_lost"}),
            self.said("sends", 2, "complete", "good"),
            self.said("told", 2, "complete", "good", status=200, body={"dedup": False}),
        ]

    @staticmethod
    def claimed(slot: str, epoch: int, kind: str = "a") -> Body:
        job = {"job_id": "j", "epoch": epoch, "lease_token": f"t{epoch}", "attempt": epoch, "max_attempts": 2}
        body = {"jobs": [job | {"kind": kind}]}
        return {"what": "claimed", "life": 1, "slot": slot, "claim": "1.0", "status": 200, "body": body}

    @staticmethod
    def said(what: str, epoch: int, call: str, result: str, **facts: Any) -> Body:
        job = {"job_id": "j", "epoch": epoch, "lease_token": f"t{epoch}"}
        return {"what": what, "life": 1, "job": job, "call": call, "sent": {"result": result}, **facts}

    @staticmethod
    def ran(epoch: int) -> Body:
        job = {"job_id": "j", "epoch": epoch, "lease_token": f"t{epoch}"}
        return {"what": "runs", "life": 1, "slot": "w2", "job": job}

    def faults(self, seconds: float = 0.1, outages: Sequence[Outage] = ()) -> str:
        """What the verdict finds, with so much time between two lines."""
        lines = [line | {"at": seconds * number} for number, line in enumerate(self.lines)]
        books = Books(self.ids, {"j": self.job}, frozenset(self.dead), self.metrics)
        verdict = Verdict()
        judge_jobs(verdict, books, [self.order], lines, outages)
        return "\n".join(verdict.faults)


def test_a_run_that_went_well_has_no_fault() -> None:
    assert not Scene().faults()


def _told(epoch: int, result: str, status: int, **body: Any) -> Callable[[Scene], None]:
    return lambda scene: scene.lines.append(scene.said("told", epoch, "complete", result, status=status, body=body))


WRONG: dict[str, tuple[Callable[[Scene], Any], str]] = {
    "a job is missing": (
        lambda scene: scene.order.answers.append(scene.order.answers[0] | {"job_id": "k"}),
        "was told",
    ),
    "two were accepted": (lambda scene: scene.order.answers.append(scene.order.answers[0]), "accepted 2 times"),
    "a job that nobody wants": (lambda scene: scene.job.update(params={"order": "x"}), "nobody has asked"),
    "it has not ended": (lambda scene: scene.job.update(state="leased"), "has not ended"),
    "one run too many": (lambda scene: scene.job.update(attempt=3, epoch=3), "has run 3 times"),
    "a run that was not charged": (lambda scene: scene.job.update(attempt=0), "and 0 were charged"),
    "a charge without a run": (lambda scene: scene.job.update(deferrals=1), "leases were charged"),
    "another end was told": (
        lambda scene: scene.order.cancels.append(Told(200, {"job_id": "j", "state": "failed"})),
        "was told",
    ),
    "a result that nobody sent": (lambda scene: scene.job["end"].update(result="other"), "sent were"),
    "a late result was taken": (_told(1, "late", 200, dedup=False), "after a later one was given out"),
    "two results were taken": (_told(2, "other", 200, dedup=False), "was taken, and is"),
    "its own report was held against it": (_told(2, "good", 409, error="lease_lost"), "was taken, and refused"),
    "a function ran twice": (lambda scene: scene.lines.extend([scene.ran(2)] * 2), "2 times under one lease"),
    "one lease, two holders": (lambda scene: scene.lines.append(scene.claimed("w3", 2)), "was given to"),
    "a strange answer": (_told(2, "good", 404, error="not_found"), "a worker was answered 404"),
    "a count that is wrong": (lambda scene: scene.metrics.update(inflight=1), "counted"),
    "a dead letter that is alive": (lambda scene: scene.dead.add("j"), "dead letters"),
    "a job that is listed twice": (lambda scene: scene.ids.append("j"), "listed twice"),
}


@pytest.mark.parametrize(("change", "fault"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_found_out(change: Callable[[Scene], Any], fault: str) -> None:
    scene = Scene()
    change(scene)
    assert fault in scene.faults()


def test_a_lease_that_was_held_and_lost_is_found_out() -> None:
    scene = Scene()
    scene.lines[0] = scene.claimed("w1", 1, LONG)
    lost = "was held with heartbeats was lost"
    assert lost in scene.faults()
    assert not scene.faults(LONG_LEASE_SEC), "its worker was not heard for longer than the lease"
    outage = (0.5 * LONG_LEASE_SEC, 2.5 * LONG_LEASE_SEC)
    assert lost in scene.faults(LONG_LEASE_SEC, [outage]), "nobody could hear it"
    late = (1.5 * LONG_LEASE_SEC, 2.5 * LONG_LEASE_SEC)
    assert not scene.faults(LONG_LEASE_SEC, [late]), "somebody could, for longer than the lease"
    scene.order.cancels.append(Told(200, {}))
    assert not scene.faults(), "its owner has ended it"


def test_a_step_with_two_results_is_found_out() -> None:
    scene = Scene()
    for result in ("one", "two"):
        scene.lines.insert(1, scene.said("told", 1, "steps", result, status=200, body={"result": result}))
    assert "steps of j" in scene.faults()
