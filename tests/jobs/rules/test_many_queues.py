"""Claims when there are many queues: none fails, no queue starves, and nothing is looked at that cannot be taken."""

from __future__ import annotations

import pytest

from semel.surfaces.jobs.commands import JobNote, JobsClaimed, LimitQueue, SubmitJobs
from semel.surfaces.jobs.limits import Reach
from semel.surfaces.jobs.rules.claim import MAX_ANSWER_BYTES, MAX_LINES
from semel.surfaces.jobs.tables import JOB
from semel.surfaces.jobs.wire.fields import parse_members
from semel.surfaces.jobs.wire.worker_calls import ClaimCaller, parse_claim
from tests.jobs.rig import HOUR_MS, OPEN, START, Rig, claim, done, draft

MANY = 20
"""More queues than a decision may ask for, one after the other."""
HUNDREDS = 600
"""More queues than one claim looks into."""
LARGE = b'{"a":"' + b"x" * (2**20 - 8) + b'"}'


def names(count: int, prefix: str = "q") -> list[str]:
    return [f"{prefix}{number:04}" for number in range(count)]


# -- no claim fails ---------------------------------------------------------------------------------------------------


def test_a_claim_beside_a_submission_into_many_new_queues() -> None:
    rig = Rig()
    told = rig.together(SubmitJobs(tuple(map(draft, names(MANY)))), *[claim(worker=f"w{n}") for n in range(3)])
    taken = [lease.job.queue for claimed in told[1:] for lease in claimed.leases]
    assert taken == [b"q0000", b"q0001", b"q0002"]
    assert len(rig.claim(most=MANY)) == MANY - 3
    rig.check_counts()


def test_a_claim_behind_a_full_queue_with_much_in_it() -> None:
    rig = Rig()
    rig.do(LimitQueue(b"full", 1))
    rig.submit(draft("full", priority=0) for _ in range(1_001))
    assert [lease.job.queue for lease in rig.claim()] == [b"full"]
    rig.submit(map(draft, names(MANY)))
    taken = [lease.job.queue.decode() for _ in range(4) for lease in rig.claim()]
    assert taken == names(4)
    assert len(rig.claim(most=100)) == MANY - 4


def test_a_claim_behind_a_thousand_delayed_jobs() -> None:
    rig = Rig()
    rig.submit(draft("slow", priority=0, delay_ms=HOUR_MS if number else 0) for number in range(1_001))
    rig.submit(map(draft, names(MANY)))
    assert [lease.job.queue for lease in rig.claim(most=2)] == [b"slow", b"q0000"]
    assert [lease.job.queue for lease in rig.claim(most=2)] == [b"q0001", b"q0002"]


def test_a_claim_that_reaps_in_many_queues_before_the_reaper_does() -> None:
    rig = Rig()
    rig.submit(map(draft, names(MANY)))
    assert len(rig.claim(most=MANY)) == MANY
    rig.world.pass_ms(2_000)
    claimed: JobsClaimed = rig.do(claim(asked_at=rig.world.wall))
    assert [note.event for note in claimed.notes] == ["LEASE_REAP"] * MANY
    assert [(lease.job.queue, lease.job.attempt) for lease in claimed.leases] == [(b"q0000", 2)]
    assert len(rig.claim(most=MANY)) == MANY - 1
    rig.check_counts()


# -- no queue starves -------------------------------------------------------------------------------------------------


def test_full_queues_do_not_hide_those_behind_them() -> None:
    rig = Rig()
    for queue in names(HUNDREDS):
        rig.do(LimitQueue(queue.encode(), 1))
    rig.submit(draft(queue, lease_ms=HOUR_MS) for queue in names(HUNDREDS) * 2)
    taken = [lease.job.queue.decode() for _ in range(HUNDREDS // 100) for lease in rig.claim(most=100)]
    assert sorted(taken) == names(HUNDREDS)
    claimed: JobsClaimed = rig.do(claim())
    assert (claimed.leases, claimed.is_saturated) == ((), True)


def test_a_claim_that_finds_no_slot_tells_which_limit_it_met() -> None:
    rig = Rig(OPEN._replace(max_inflight=2))
    rig.do(LimitQueue(b"narrow", 1))
    rig.submit([draft("narrow"), draft("narrow")])
    assert len(rig.claim(most=2)) == 1
    claimed: JobsClaimed = rig.do(claim())
    assert claimed.notes == (JobNote("INFLIGHT_SATURATED", {"inflight": 1, "max": 1, "queue": "narrow"}),)
    rig.submit([draft("wide"), draft("wide")])
    assert len(rig.claim(most=2)) == 1
    claimed = rig.do(claim())
    assert claimed.notes == (JobNote("INFLIGHT_SATURATED", {"inflight": 2, "max": 2}),)


def test_queues_whose_jobs_are_all_delayed_by_now_do_not_hide_those_behind_them() -> None:
    rig = Rig()
    rig.submit(draft(queue, priority=0) for queue in names(HUNDREDS))
    rig.submit(draft(queue, priority=0, delay_ms=HOUR_MS) for queue in names(HUNDREDS))
    for _ in range(HUNDREDS // 100):
        for lease in rig.claim(most=100):
            rig.do(done(lease))
    rig.submit([draft("z")])
    taken = [lease.job.queue for _ in range(2) for lease in rig.claim()]
    assert taken == [b"z"]
    rig.world.pass_ms(HOUR_MS)
    assert [lease.job.queue for lease in rig.claim()] == [b"q0000"]


@pytest.mark.parametrize("reach", [((b"z", False),), ((b"y", False), (b"z", False))], ids=["one", "two"])
def test_a_worker_that_is_limited_to_few_queues_finds_them_behind_thousands(reach: Reach) -> None:
    rig = Rig()
    rig.submit(map(draft, names(MAX_LINES + 104)))
    rig.submit([draft("z")])
    asked = parse_claim(parse_members(b'{"worker_id":"w"}'), ClaimCaller(b"workers", reach, START, b"a secret"))
    claimed: JobsClaimed = rig.do(asked.claim)
    assert [lease.job.queue for lease in claimed.leases] == [b"z"]


# -- what a claim costs -----------------------------------------------------------------------------------------------


def fronts(rig: Rig) -> list[object]:
    """The ranges of waiting jobs that the last batch looked at."""
    return [wanted for wanted in rig.looked_at if wanted.table is JOB and wanted.by in ("ready", "kind")]


def test_a_claim_does_not_look_where_nothing_can_be() -> None:
    rig = Rig()
    rig.submit(draft(queue, delay_ms=HOUR_MS) for queue in names(900))
    absent = [f"absent-{number}" for number in range(100)]
    for kinds in ([], ["k"], absent):
        assert rig.claim(most=10, kinds=kinds) == ()
        assert (fronts(rig), rig.reruns) == ([], 0), kinds
    rig.submit(draft(queue, kind="other") for queue in names(900))
    assert rig.claim(most=10, kinds=absent) == ()
    assert (fronts(rig), rig.reruns) == ([], 0)
    assert len(rig.claim(most=10, kinds=[*absent[1:], "other"])) == 10


def test_a_claim_takes_no_more_than_an_answer_may_carry() -> None:
    rig = Rig()
    rig.submit(draft(params=LARGE) for _ in range(100))
    seen = 0
    while seen < 100:
        taken = rig.claim(most=100)
        assert 1 <= len(taken) <= MAX_ANSWER_BYTES // len(LARGE)
        seen += len(taken)
    assert rig.claim(most=100) == ()


def test_more_delayed_lines_than_a_claim_reads_hide_no_ready_one() -> None:
    rig = Rig()
    rig.submit(draft(queue, delay_ms=HOUR_MS) for queue in names(MAX_LINES + 100))
    rig.submit([draft("z")])
    [lease] = rig.claim()
    assert lease.job.queue == b"z"
