"""Ticks that are refused and clocks that are wrong: a schedule loses nothing by either, and neither do the others."""

from __future__ import annotations

from functools import partial

from semel.surfaces.jobs.commands import FireSchedule, PutSchedule, ScheduleFired
from semel.surfaces.jobs.limits import JobBounds, JobPolicy
from semel.surfaces.jobs.maintenance import TICKS_AT_ONCE
from semel.surfaces.jobs.reading import due_schedules
from semel.surfaces.jobs.schedule_table import JOB_SCHEDULE
from semel.surfaces.jobs.tables import JOB
from tests.jobs.rig import OPEN, Rig, done, draft

MINUTE_MS = 60_000
TEN_YEARS_MS = 10 * 365 * 86_400_000
ONE_EACH = OPEN._replace(max_records_each=1)


def every_minute(name: str, owner: str = "ann") -> PutSchedule:
    return PutSchedule(name.encode(), owner.encode(), b"* * * * *", b"k", b"{}", b"q", 4, 1, b"last", False)


def tick(rig: Rig, name: str) -> ScheduleFired:
    told: ScheduleFired = rig.do(FireSchedule(name.encode(), rig.world.random_bytes(8)))
    return told


def tick_all(rig: Rig) -> int:
    """What a node does once a second; how many jobs it made."""
    names = rig.read(partial(due_schedules, limit=TICKS_AT_ONCE))
    return sum(tick(rig, name.decode()).submitted for name in names)


def test_a_refused_tick_leaves_the_counts_right() -> None:
    """It frees expired keys of others on its way, though it does not get in."""
    rig = Rig(ONE_EACH._replace(key_ttl_ms=1_000))
    rig.submit(draft("x", key="old", principal=principal) for principal in ("bob", "cec"))
    for lease in rig.claim(most=2):
        rig.do(done(lease))
    rig.submit([draft("y", key="pinned")])
    rig.do(every_minute("s"))
    rig.world.pass_ms(MINUTE_MS + 1_000)
    told = tick(rig, "s")
    assert (told.submitted, [note.event for note in told.notes]) == (0, ["IDEMPOTENCY_STORE_FULL"])
    rig.check_counts()

    [lease] = rig.claim("y")
    rig.do(done(lease))
    rig.world.pass_ms(2_000)
    assert tick(rig, "s").submitted == 1
    rig.check_counts()


def test_a_hundred_refused_schedules_do_not_hide_the_others() -> None:
    rig = Rig(ONE_EACH)
    rig.submit([draft(key="pinned")])
    for number in range(TICKS_AT_ONCE):
        rig.do(every_minute(f"full-{number:03}"))
    rig.do(every_minute("z", "bob"))
    rig.world.pass_ms(MINUTE_MS)
    made = 0
    for _ in range(3):
        rig.world.pass_ms(1_000)
        made += tick_all(rig)
    assert made == 1
    assert [job.principal for job in rig.rows(JOB)].count(b"bob") == 1


def test_a_refused_tick_comes_again_and_fires_its_own_instant() -> None:
    rig = Rig(JobPolicy(queued=JobBounds(1), max_inflight=0))
    rig.submit([draft()])
    rig.do(every_minute("s"))
    rig.world.pass_ms(MINUTE_MS)
    due = rig.rows(JOB_SCHEDULE)[0].next_at
    assert tick_all(rig) == 0
    assert len(rig.claim()) == 1
    rig.world.pass_ms(1_000)
    assert tick_all(rig) == 1
    assert rig.rows(JOB_SCHEDULE)[0].last_fired == due


def test_a_clock_that_is_ten_years_ahead_for_a_moment_uses_up_no_schedule() -> None:
    rig = Rig()
    rig.do(every_minute("s"))
    rig.world.pass_ms(MINUTE_MS)
    assert tick_all(rig) == 1
    rig.world.wall += TEN_YEARS_MS
    assert tick_all(rig) == 0
    assert tick(rig, "s").submitted == 0
    rig.world.wall -= TEN_YEARS_MS
    for life in (rig, Rig(world=rig.world, store=rig.stored)):
        life.world.pass_ms(MINUTE_MS)
        assert tick_all(life) == 1
        [row] = life.rows(JOB_SCHEDULE)
        assert life.world.wall < row.next_at <= life.world.wall + MINUTE_MS


def test_a_clock_that_is_wrong_for_a_moment_holds_up_no_delay() -> None:
    """What a commit in that moment writes down must not be the time behind which everything else would stand still."""
    rig = Rig()
    rig.submit([draft("before")])
    rig.world.wall += TEN_YEARS_MS
    rig.submit([draft("meanwhile")])
    rig.world.wall -= TEN_YEARS_MS
    for life in (rig, Rig(world=rig.world, store=rig.stored)):
        life.submit([draft("delayed", delay_ms=1_000)])
        assert life.claim("delayed") == ()
        life.world.pass_ms(1_000)
        assert len(life.claim("delayed")) == 1
