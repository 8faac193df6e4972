"""Corners of a key's life: a full store, an expired record that nobody has swept, a job that is gone."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest

from semel.store.protocol import Changes
from semel.surfaces.jobs.commands import (
    JobChanged,
    JobCommand,
    JobReport,
    JobReported,
    ReleaseKey,
    RequeueJob,
    SubmitJobs,
)
from semel.surfaces.jobs.contract import JOBS_LOCK
from semel.surfaces.jobs.tables import JOB, JOB_EXPIRY, JOB_RECORD, WAITING
from tests.jobs.rig import HOUR_MS, OPEN, Rig, claim, done, draft, failed

FULL = 100


def rules(answers: list[Any]) -> list[str]:
    return [answer.rule for answer in answers]


@pytest.mark.parametrize("size", [20, FULL])
def test_a_large_batch_is_admitted_to_a_full_store_that_forgets_the_keys_of_many(size: int) -> None:
    rig = Rig(OPEN._replace(max_records=FULL, evicts=True))
    rig.submit(draft(key="k", principal=f"p{number:03}") for number in range(FULL))
    for lease in rig.claim(most=FULL):
        rig.world.pass_ms(1)
        rig.do(done(lease))
    answers = rig.do(SubmitJobs(tuple(draft(key=f"k{number}", principal="new") for number in range(size))))
    assert rules(answers) == ["J2"] * size
    assert [note.event for answer in answers for note in answer.notes] == ["IDEMPOTENCY_EVICT"] * size
    left = [row.principal.decode() for row in rig.rows(JOB_RECORD)]
    assert sorted(left) == ["new"] * size + [f"p{number:03}" for number in range(size, FULL)]
    rig.check_counts()


def test_a_key_that_has_expired_is_not_pinned_again_by_a_requeue() -> None:
    """Nobody has swept it; it is as good as gone all the same."""
    rig = Rig(OPEN._replace(key_ttl_ms=1_000))
    rig.submit([draft(key="k", payload="one")])
    [lease] = rig.claim()
    rig.do(failed(lease))
    rig.world.pass_ms(5_000)
    changed: JobChanged = rig.do(RequeueJob(lease.job.id, "admin"))
    assert changed.job.phase == WAITING
    assert rules(rig.submit([draft(key="k", payload="two")])) == ["J2"]
    [old, _] = rig.claim(most=2)
    assert old.job.id == lease.job.id
    rig.do(done(old))
    rig.world.pass_ms(5_000)
    assert rules(rig.submit([draft(key="k", payload="two")])) == ["J3"]
    rig.check_counts()


def test_an_outside_report_may_end_a_job_that_was_requeued() -> None:
    """Before a first claim there is no lease to lose: whoever reports from outside may do so in each of its lives."""
    rig = Rig()
    rig.submit([draft(key="k")])
    [job] = rig.rows(JOB)
    report = JobReport(job.id, None, False, b"{}", sha256(b"{}").digest(), "boom", "it broke", is_foreign=True)
    first: JobReported = rig.do(report)
    assert (first.dedup, first.job.reason) == (False, b"permanent")
    assert rig.do(report).dedup is True
    rig.do(RequeueJob(job.id, "admin"))
    again: JobReported = rig.do(report)
    assert (again.dedup, again.job.revision) == (False, 1)
    rig.check_counts()


@pytest.mark.parametrize("payload", ["the same", "another"])
def test_a_key_whose_job_is_gone_is_new(payload: str) -> None:
    rig = Rig()
    [first] = rig.submit([draft(key="k", payload="the same")])
    [lease] = rig.claim()
    rig.do(done(lease))
    lose(rig, first.job.id)
    assert rules(rig.submit([draft(key="k", payload=payload)])) == ["J2"]
    assert rules(rig.submit([draft(key="k", payload=payload)])) == ["J3"]
    rig.check_counts()


def test_an_expired_key_is_swept_once_and_the_next_job_keeps_it() -> None:
    rig = Rig(OPEN._replace(key_ttl_ms=1_000))
    [first] = rig.submit([draft(key="k")])
    rig.do(done(rig.claim()[0]))
    lose(rig, first.job.id)
    rig.submit([draft(key="k"), draft(key="other")])
    rig.world.pass_ms(5_000)
    sweep(rig)
    assert rig.rows(JOB_EXPIRY) == []
    assert rules(rig.submit([draft(key="k"), draft(key="other")])) == ["J3", "J3"]
    for lease in rig.claim(most=2):
        rig.do(done(lease))
    assert len(rig.rows(JOB_EXPIRY)) == 2
    rig.world.pass_ms(5_000)
    sweep(rig)
    assert (rig.rows(JOB_EXPIRY), rig.rows(JOB_RECORD)) == ([], [])
    rig.check_counts()


def test_a_released_key_is_not_pinned_nor_swept_by_its_former_job() -> None:
    rig = Rig(OPEN._replace(key_ttl_ms=1_000))
    rig.submit([draft(key="k")])
    [lease] = rig.claim()
    rig.do(ReleaseKey(b"ann", b"k", "k", True))
    assert rules(rig.submit([draft(key="k")])) == ["J2"]
    rig.do(done(lease))
    assert rig.rows(JOB_EXPIRY) == []
    rig.do(done(rig.claim()[0]))
    rig.do(ReleaseKey(b"ann", b"k", "k", False))
    assert (rig.rows(JOB_EXPIRY), rig.rows(JOB_RECORD)) == ([], [])
    rig.check_counts()


def test_an_evicted_key_is_not_taken_back_by_a_requeue() -> None:
    rig = Rig(OPEN._replace(max_records=1, evicts=True))
    rig.submit([draft(key="k")])
    [lease] = rig.claim()
    rig.do(failed(lease))
    assert rules(rig.submit([draft(key="new")])) == ["J2"]
    rig.do(RequeueJob(lease.job.id, "admin"))
    assert [job.key_until for job in rig.rows(JOB) if job.key == b"k"] == [0]
    for one in rig.claim(most=2):
        rig.do(done(one))
    assert [row.key for row in rig.rows(JOB_EXPIRY)] == [b"new"]
    rig.check_counts()


def sweep(rig: Rig) -> None:
    for command in rig.read(rig.jobs.chores):
        rig.do(command)


def lose(rig: Rig, job_id: bytes) -> None:
    """Take a job's row out of the store behind the rules' back."""
    tx = rig.stored.begin((JOBS_LOCK,))
    tx.flush(Changes({}, {}, {JOB: [(job_id,)]}))
    tx.commit()


def test_what_is_only_repeated_is_not_committed() -> None:
    """A hit, a collision, a repeated report, a repeated claim and an empty one change nothing, and so sync nothing."""
    rig = Rig()

    def ends(*commands: JobCommand) -> list[str]:
        commits = []
        for command in commands:
            rig.do(command)
            commits.append(rig.commit.value)
        return commits

    first = SubmitJobs((draft(key="k", lease_ms=HOUR_MS),))
    named = claim(asked_at=rig.world.wall)._replace(claim=b"c")
    assert ends(first) == ["durable"]
    [lease] = rig.do(named).leases
    rig.world.pass_ms(5_000)
    other = SubmitJobs((draft(key="k", payload="two"),))
    assert ends(first, other, named, claim("nowhere")) == ["nothing"] * 4
    assert ends(done(lease)) == ["durable"]
    assert ends(done(lease), first, other) == ["nothing"] * 3
