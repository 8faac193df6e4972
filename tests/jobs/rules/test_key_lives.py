"""Corners of a key's life: a full store, an expired record that nobody has swept, a job that is gone."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest

from semel.server.settings_loader import load_settings
from semel.store.protocol import Changes
from semel.surfaces.jobs.commands import (
    JobChanged,
    JobCommand,
    JobRefused,
    JobReport,
    JobReported,
    ReleaseKey,
    RequeueJob,
    SubmitJobs,
)
from semel.surfaces.jobs.contract import JOBS_LOCK
from semel.surfaces.jobs.limits import JobBounds, JobPolicy
from semel.surfaces.jobs.service import policy_of
from semel.surfaces.jobs.tables import JOB, JOB_BRIEF, JOB_EXPIRY, JOB_RECORD, WAITING
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


FEW = OPEN._replace(queued=JobBounds(3), scheduled=JobBounds(3), max_inflight=3, max_generated_ended=-6)
"""A store of three generated keys."""


def made_up(rig: Rig, key: str, principal: str = "ann") -> str:
    """The row of the table for a submission with a generated key, or the code of its refusal."""
    [answer] = rig.submit([draft(key=key, principal=principal, is_generated=True)])
    rig.check_counts()
    return answer.refusal.code if isinstance(answer, JobRefused) else str(answer.rule)


def test_a_generated_key_is_pinned_by_its_job_and_kept_for_ten_minutes_after_its_end() -> None:
    rig = Rig(OPEN._replace(max_records=1))
    assert made_up(rig, "k") == "J2"
    rig.world.pass_ms(48 * HOUR_MS)
    assert made_up(rig, "k") == "J3"
    rig.do(done(rig.claim()[0]))
    rig.world.pass_ms(599_999)
    rig.sweep()
    assert made_up(rig, "k") == "J4"
    rig.world.pass_ms(1)
    assert made_up(rig, "k") == "J2"
    rig.world.pass_ms(1_200_000)
    rig.do(done(rig.claim()[0]))
    rig.world.pass_ms(600_000)
    rig.sweep()
    assert (rig.rows(JOB_BRIEF), rig.rows(JOB_RECORD)) == ([], [])
    rig.check_counts()


def test_no_generated_key_of_an_unfinished_job_is_evicted_and_of_the_others_the_first_to_expire() -> None:
    rig = Rig(FEW)
    assert [made_up(rig, key, principal) for key, principal in (("a", "ann"), ("b", "ben"), ("c", "ann"))] == ["J2"] * 3
    [a, b, _] = rig.claim(most=3)
    assert made_up(rig, "d") == "jobs:idempotency_store_full"
    assert made_up(rig, "a") == "J3"
    rig.do(done(b))
    rig.world.pass_ms(1)
    rig.do(done(a))
    assert made_up(rig, "d") == "J2"
    assert made_up(rig, "a") == "J4"
    assert [row.key for row in rig.rows(JOB_BRIEF)] == [b"a"]
    assert made_up(rig, "b", "ben") == "J2"
    assert made_up(rig, "e") == "jobs:idempotency_store_full"
    assert sorted(row.key for row in rig.rows(JOB_RECORD)) == [b"b", b"c", b"d"]


def test_named_and_generated_keys_make_no_room_for_each_other() -> None:
    rig = Rig(FEW._replace(max_records=1, evicts=True))
    assert rules(rig.submit([draft(key="named")])) == ["J2"]
    assert [made_up(rig, key) for key in ("a", "b")] == ["J2"] * 2
    for lease in rig.claim(most=3):
        rig.do(done(lease))
    assert [made_up(rig, key) for key in ("c", "d")] == ["J2"] * 2
    assert sorted(row.key for row in rig.rows(JOB_RECORD)) == [b"b", b"c", b"d", b"named"]
    assert rules(rig.submit([draft(key="other")])) == ["J2"]
    assert sorted(row.key for row in rig.rows(JOB_RECORD)) == [b"b", b"c", b"d", b"other"]


@pytest.mark.parametrize("was_generated", [False, True])
def test_an_expired_key_that_nobody_swept_may_be_of_the_other_kind_the_next_time(was_generated: bool) -> None:
    rig = Rig(OPEN._replace(key_ttl_ms=600_000))
    rig.submit([draft(key="k", is_generated=was_generated)])
    rig.do(done(rig.claim()[0]))
    rig.world.pass_ms(600_000)
    assert rules(rig.submit([draft(key="k", is_generated=not was_generated)])) == ["J2"]
    rig.check_counts()
    rig.sweep()
    assert rules(rig.submit([draft(key="k", is_generated=not was_generated)])) == ["J3"]
    rig.do(done(rig.claim()[0]))
    assert [len(rig.rows(table)) for table in (JOB_EXPIRY, JOB_BRIEF)] == [was_generated, not was_generated]
    rig.check_counts()


def test_a_generated_key_is_pinned_again_by_a_requeue_and_released_as_others() -> None:
    rig = Rig()
    assert made_up(rig, "k") == "J2"
    [lease] = rig.claim()
    rig.do(failed(lease))
    rig.do(RequeueJob(lease.job.id, "admin"))
    assert rig.rows(JOB_BRIEF) == []
    rig.world.pass_ms(HOUR_MS)
    assert made_up(rig, "k") == "J3"
    rig.do(done(rig.claim()[0]))
    assert [row.expires_at - rig.world.wall for row in rig.rows(JOB_BRIEF)] == [600_000]
    rig.do(ReleaseKey(b"ann", b"k", "k", False))
    assert (rig.rows(JOB_BRIEF), rig.rows(JOB_RECORD)) == ([], [])
    rig.check_counts()


def test_the_default_store_has_room_for_a_million_waiting_jobs_and_their_keys() -> None:
    policy = JobPolicy()
    assert policy._replace(principal_share=1) == policy_of(load_settings({}, {}, None))
    assert (policy.queued.all, policy.max_inflight, policy.max_records) == (1_000_000, 10_000, 200_000)
    assert policy.max_generated == 1_000_000 + 100_000 + 10_000 + 1_000_000


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
