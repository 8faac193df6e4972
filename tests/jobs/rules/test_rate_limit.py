"""The token bucket of a queue: what it allows at each instant, and what a claim makes of it."""

from __future__ import annotations

import pytest

from semel.surfaces.jobs.commands import JobsClaimed, LimitQueue, RateLimit
from semel.surfaces.jobs.limits import MAX_RATE_COUNT, MAX_RATE_MS
from semel.surfaces.jobs.reading import waiting_lines
from semel.surfaces.jobs.rules.rate_limit import UNBOUNDED, settled, take_tokens, token_wait_ms, tokens, with_rate
from semel.surfaces.jobs.tables import JOB_QUEUE, JobQueueRow
from tests.jobs.rig import START, Rig, claim, done, draft

EMPTY = JobQueueRow(b"q", 0, 0, 0, 0, 0)


def limited(count: int, per_ms: int, taken: int = 0, at: int = START) -> JobQueueRow:
    """A queue of which this many tokens were taken at once."""
    return take_tokens(with_rate(EMPTY, count, per_ms, at), taken, at)


@pytest.mark.parametrize(
    ("count", "per_ms", "taken", "after_ms", "left", "wait_ms"),
    [
        (10, 1_000, 0, 0, 10, 0),
        (10, 1_000, 3, 0, 7, 0),
        (10, 1_000, 10, 0, 0, 100),
        (10, 1_000, 10, 99, 0, 1),
        (10, 1_000, 10, 100, 1, 0),
        (10, 1_000, 10, 950, 9, 0),
        (10, 1_000, 10, 1_000, 10, 0),
        (10, 1_000, 10, 99_000, 10, 0),
        (3, 1_000, 3, 0, 0, 334),
        (3, 1_000, 3, 333, 0, 1),
        (3, 1_000, 3, 334, 1, 0),
        (3, 1_000, 3, 667, 2, 0),
        (3, 1_000, 3, 999, 2, 0),
        (3, 1_000, 3, 1_000, 3, 0),
        (1, 86_400_000, 1, 0, 0, 86_400_000),
        (1_000, 1, 1_000, 0, 0, 1),
        (1_000, 1, 1_000, 1, 1_000, 0),
        (MAX_RATE_COUNT, MAX_RATE_MS, MAX_RATE_COUNT, 87, 1, 0),
    ],
)
def test_tokens_come_back_one_by_one_and_never_beyond_the_count(
    count: int, per_ms: int, taken: int, after_ms: int, left: int, wait_ms: int
) -> None:
    row = limited(count, per_ms, taken)
    assert (tokens(row, START + after_ms), token_wait_ms(row, START + after_ms)) == (left, wait_ms)
    assert row.rate_full_at < 2**63


@pytest.mark.parametrize(("count", "per_ms"), [(1, 1), (3, 1_000), (7, 100), (10, 1_000), (999, 997)])
def test_a_greedy_worker_never_gets_more_than_the_bucket_and_what_came_back(count: int, per_ms: int) -> None:
    row, started = limited(count, per_ms), 0
    for after_ms in range(3 * per_ms + 1):
        taken = tokens(row, START + after_ms)
        row, started = take_tokens(row, taken, START + after_ms), started + taken
        assert started == count + count * after_ms // per_ms


def test_a_queue_without_a_rate_limit_is_not_limited() -> None:
    assert tokens(EMPTY, START) == UNBOUNDED
    assert token_wait_ms(EMPTY, START) == 0
    assert take_tokens(EMPTY, 5, START) == EMPTY


@pytest.mark.parametrize("back_ms", [1, 500, 999, 1_000, 3_600_000])
def test_a_clock_that_steps_back_gives_no_extra_start_and_blocks_for_one_period_at_most(back_ms: int) -> None:
    row, now = limited(10, 1_000, 10), START - back_ms
    assert tokens(row, now) == 0
    row = settled(row, now)
    assert tokens(row, now) == 0
    assert 0 < token_wait_ms(row, now) <= 1_000
    assert tokens(row, now + 1_000) in range(1, 11)
    assert settled(row, now) == row


@pytest.mark.parametrize(
    ("count", "per_ms", "left"),
    [(10, 1_000, 4), (20, 1_000, 14), (5, 1_000, 0), (10, 5_000, 4), (0, 0, UNBOUNDED)],
)
def test_another_rate_gives_no_token_back(count: int, per_ms: int, left: int) -> None:
    row = with_rate(limited(10, 1_000, 6), count, per_ms, START)
    assert tokens(row, START) == left
    if not count:
        assert row == EMPTY


# -- claims ------------------------------------------------------------------------------------------------------------


def limit(rig: Rig, queue: str, count: int, per_ms: int) -> None:
    rig.do(LimitQueue(queue.encode(), None, None, RateLimit(count, per_ms)))


def asked(rig: Rig, **fields: object) -> JobsClaimed:
    told: JobsClaimed = rig.do(claim(asked_at=rig.world.wall, **fields))  # type: ignore[arg-type]
    return told


def test_a_claim_gets_as_many_as_there_are_tokens_and_is_told_when_to_come_again() -> None:
    rig = Rig()
    limit(rig, "q", 3, 1_000)
    rig.submit(draft() for _ in range(10))
    assert len(rig.claim(most=10)) == 3
    told = asked(rig, most=10)
    assert (told.leases, told.is_saturated, told.token_wait_ms) == ((), False, 334)
    assert [(note.event, dict(note.details)) for note in told.notes] == [
        ("RATE_LIMITED", {"queue": "q", "count": 3, "per_ms": 1_000})
    ]
    rig.world.pass_ms(333)
    assert rig.claim(most=10) == ()
    rig.world.pass_ms(1)
    assert len(rig.claim(most=10)) == 1
    rig.check_counts()


def test_a_claim_passes_over_a_queue_without_tokens_and_serves_others() -> None:
    rig = Rig()
    limit(rig, "q", 1, 60_000)
    rig.submit([*(draft(priority=0) for _ in range(5)), *(draft("other") for _ in range(3))])
    assert [lease.job.queue for lease in rig.claim(most=3)] == [b"q", b"other", b"other"]
    told = asked(rig, most=3)
    assert [lease.job.queue for lease in told.leases] == [b"other"]
    assert told.token_wait_ms == 0


def test_claims_of_one_batch_share_the_tokens() -> None:
    rig = Rig()
    limit(rig, "q", 3, 1_000)
    rig.submit(draft() for _ in range(10))
    told = rig.together(*(claim(worker=f"w{number}", most=2, asked_at=rig.world.wall) for number in range(4)))
    assert [len(one.leases) for one in told] == [2, 1, 0, 0]


def test_neither_a_completion_nor_a_lapsed_offer_gives_a_token_back() -> None:
    rig = Rig()
    limit(rig, "q", 2, 60_000)
    rig.submit(draft() for _ in range(5))
    [first] = rig.claim()
    rig.do(done(first))
    assert len(rig.claim(waits=True)) == 1
    rig.world.pass_ms(6_000)
    assert rig.claim(most=5) == ()


def test_the_same_named_claim_again_takes_no_token() -> None:
    rig = Rig()
    limit(rig, "q", 2, 60_000)
    rig.submit(draft(lease_ms=100_000) for _ in range(5))
    assert rig.claim(name="c") == rig.claim(name="c")
    assert len(rig.claim(most=5)) == 1


def test_a_queue_at_its_limit_of_leases_is_saturated_and_one_without_tokens_is_not() -> None:
    rig = Rig()
    rig.do(LimitQueue(b"full", 1, None, RateLimit(1, 500)))
    rig.submit(draft("full") for _ in range(2))
    assert len(rig.claim(most=2)) == 1
    assert (asked(rig).is_saturated, asked(rig).token_wait_ms) == (True, 0)
    limit(rig, "late", 1, 700)
    rig.submit(draft("late") for _ in range(2))
    assert len(rig.claim(most=2)) == 1
    assert (asked(rig).is_saturated, asked(rig).token_wait_ms) == (False, 700)


def test_a_restart_with_an_earlier_clock_gives_no_extra_start() -> None:
    rig = Rig()
    limit(rig, "q", 2, 1_000)
    rig.submit(draft(lease_ms=10_000_000) for _ in range(9))
    assert len(rig.claim(most=9)) == 2
    rig.world.wall -= 3_600_000
    again = Rig(world=rig.world, store=rig.stored)
    assert again.claim(most=9) == ()
    again.world.pass_ms(499)
    assert again.claim(most=9) == ()
    again.world.pass_ms(1)
    assert len(again.claim(most=9)) == 1


def test_a_wall_clock_that_steps_while_the_server_runs_changes_nothing() -> None:
    rig = Rig()
    limit(rig, "q", 2, 1_000)
    rig.submit(draft() for _ in range(9))
    assert len(rig.claim(most=9)) == 2
    for step in (3_600_000, -7_200_000):
        rig.world.wall += step
        assert rig.claim(most=9) == ()


def test_a_long_poll_looks_again_when_a_token_is_back() -> None:
    rig = Rig()
    limit(rig, "q", 2, 500)
    rig.submit([*(draft() for _ in range(9)), draft("other")])
    assert len(rig.claim("q", most=9)) == 2
    waiting = rig.read(waiting_lines)
    assert waiting.lines is not None
    assert {queue: at - waiting.now_ms for _, queue, at in waiting.lines} == {b"q": 250, b"other": 0}


def test_a_limit_that_is_lifted_leaves_no_row() -> None:
    rig = Rig()
    limit(rig, "q", 2, 1_000)
    limit(rig, "q", 0, 0)
    assert rig.rows(JOB_QUEUE) == []
