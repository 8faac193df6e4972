"""Room for jobs: a calendar takes none from the work of today, and no caller takes what another one needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from semel.store.protocol import AnyTable, Changes
from semel.surfaces.jobs.commands import JobAdmitted, JobHeartbeat, JobRefused
from semel.surfaces.jobs.limits import JobBounds
from semel.surfaces.jobs.maintenance_commands import PromoteJobs
from semel.surfaces.jobs.tables import AS_QUEUED, AS_SCHEDULED, JOB, JOB_QUEUE, JOB_SHARE, JOB_TOTALS, NOT_COUNTED
from tests.harness.together import eventually
from tests.harness.tokens import token_file
from tests.jobs.rig import FOR_EVER, OPEN, Rig, done, draft
from tests.jobs.wire import Jobs, serving

YEAR_MS = 31_536_000_000
DEPTH = 10


@pytest.fixture
def tenants(tmp_path: Path, store_kind: str) -> Iterator[tuple[Jobs, Jobs]]:
    roles = ["read", "write", "work", "admin"]
    tokens = token_file(tmp_path, {name: (name, roles, ()) for name in ("tenant-a", "tenant-b")})
    env = {"SEMEL_TOKENS": str(tokens), "SEMEL_JOBS_MAX_QUEUE_DEPTH": str(DEPTH)}
    with serving(tmp_path / "data", env=env, token="tenant-a") as first, first.with_token("tenant-b") as second:
        yield first, second


def _fill(jobs: Jobs, **fields: Any) -> int:
    """Submit until refused; how many were admitted."""
    admitted = 0
    while jobs.submit(expect=None, **fields).http == 200:
        admitted += 1
        assert admitted < 10 * DEPTH
    return admitted


def test_b7_a_tenant_that_fills_the_queue_does_not_keep_another_one_out(tenants: tuple[Jobs, Jobs]) -> None:
    first, second = tenants
    assert _fill(first, queue="a") == DEPTH, "alone it may have all of it"
    assert _fill(second, queue="b") == DEPTH // 2
    refused = second.submit(queue="b", expect=429)
    assert (refused["error"], refused["queue_depth"], refused["max"]) == ("backpressure", DEPTH // 2, DEPTH // 2)
    # The first one holds more than its share, and is let in again when it does not.
    for _ in range(DEPTH // 2):
        first.complete(first.claim_one("a"))
    assert first.submit(queue="a", expect=429)["bound"] == "queued_share"
    first.complete(first.claim_one("a"))
    first.submit(queue="a")


def test_b7_a_thousand_reminders_do_not_refuse_the_work_of_today(jobs: Jobs, queue: str, tmp_path: Path) -> None:
    with serving(tmp_path / "data", JOBS_MAX_QUEUE_DEPTH=5, JOBS_MAX_SCHEDULED=1_000) as narrow:
        for _ in range(10):
            narrow.batch([{"kind": "remind", "delay_ms": YEAR_MS}] * 100)
        assert narrow.submit("remind", delay_ms=YEAR_MS, expect=429)["bound"] == "scheduled"
        assert _fill(narrow) == 5
        seen = narrow.metrics()
        assert (seen["queue_depth"], seen["scheduled_jobs"], seen["backpressure_active"]) == (5, 1_000, 1)


def test_b7_a_scheduled_job_that_becomes_ready_is_never_refused(tmp_path: Path) -> None:
    with serving(tmp_path / "data", JOBS_MAX_QUEUE_DEPTH=2) as narrow:
        late = [narrow.submit(delay_ms=3_000)["job_id"] for _ in range(4)]
        assert _fill(narrow) == 2
        eventually(lambda: narrow.metrics()["queue_depth"] == 6, "all to be ready")
        got = {narrow.claim_one()["job_id"] for _ in range(6)}
        assert set(late) <= got


# -- The rules ---------------------------------------------------------------------------------------------------------


def _admitted(rig: Rig, number: int = 1, **fields: object) -> int:
    drafts = [draft(**fields) for _ in range(number)]  # type: ignore[arg-type]
    return sum(isinstance(answer, JobAdmitted) for answer in rig.submit(drafts))


@pytest.mark.parametrize("delay_ms", [0, YEAR_MS], ids=["queued", "scheduled"])
def test_b7_bounds_of_a_caller_and_of_a_queue(delay_ms: int) -> None:
    bounds = JobBounds(0, each_principal=3, each_queue=2)
    rig = Rig(OPEN._replace(queued=bounds, scheduled=bounds))
    assert _admitted(rig, 5, queue="q1", delay_ms=delay_ms) == 2
    assert _admitted(rig, 5, queue="q2", delay_ms=delay_ms) == 1
    assert _admitted(rig, 5, queue="q2", principal="bob", delay_ms=delay_ms) == 1
    assert _admitted(rig, 5, queue="q1", delay_ms=YEAR_MS - delay_ms) == 2, "the other kind has room of its own"


def test_b7_what_one_holds_beyond_its_share_counts_against_nobody_else() -> None:
    rig = Rig(OPEN._replace(queued=JobBounds(8), principal_share=0.5))
    assert _admitted(rig, 20) == 8
    assert _admitted(rig, 20, principal="bob") == 4
    assert _admitted(rig, 20, principal="cid") == 0, "the bound is met without what is beyond a share"
    assert _admitted(rig, 1) == 0


def test_b7_without_credentials_a_bound_is_a_bound() -> None:
    rig = Rig(OPEN._replace(queued=JobBounds(8)))
    assert _admitted(rig, 20) == 8
    [refused] = rig.submit([draft(principal="bob")])
    assert isinstance(refused, JobRefused)


def test_b7_a_job_is_counted_as_queued_once_its_time_has_come() -> None:
    rig = Rig()
    rig.submit([draft(delay_ms=1_000), draft()])
    assert {row.counted for row in rig.rows(JOB)} == {AS_SCHEDULED, AS_QUEUED}
    rig.world.pass_ms(999)
    assert rig.do(PromoteJobs(10, FOR_EVER)).number == 0
    rig.world.pass_ms(1)
    assert rig.do(PromoteJobs(10, FOR_EVER)).number == 1
    [share], [queue] = rig.rows(JOB_SHARE), rig.rows(JOB_QUEUE)
    assert (share.queued, share.scheduled, queue.queued, queue.scheduled) == (2, 0, 2, 0)


def _from_before(rig: Rig) -> None:
    """Make the rows those of data that was written before there were these counts."""
    [totals] = rig.rows(JOB_TOTALS)
    updates: dict[AnyTable, list[Any]] = {
        JOB: [row._replace(counted=NOT_COUNTED, lease=b"") for row in rig.rows(JOB)],
        JOB_QUEUE: [row._replace(queued=0, scheduled=0) for row in rig.rows(JOB_QUEUE)],
        JOB_TOTALS: [totals._replace(scheduled=0)],
    }
    tx = rig.stored.begin((), durable=True)
    tx.flush(Changes({}, updates, {JOB_SHARE: [(row.principal,) for row in rig.rows(JOB_SHARE)]}))
    tx.commit()


@pytest.mark.parametrize("is_counted_first", [True, False])
def test_b7_jobs_from_before_these_counts_go_on_and_are_counted(is_counted_first: bool) -> None:
    rig = Rig()
    rig.submit([draft(delay_ms=YEAR_MS), draft(), draft(), draft()])
    [held] = rig.claim("q")
    _from_before(rig)
    if is_counted_first:
        assert rig.do(PromoteJobs(10, FOR_EVER)).number == 3
        [share], [queue] = rig.rows(JOB_SHARE), rig.rows(JOB_QUEUE)
        assert (share.queued, share.scheduled, queue.queued, queue.scheduled, queue.leased) == (2, 1, 2, 1, 1)
    rig.do(JobHeartbeat(held.job.id, held.token, b"1"))
    rig.do(done(held))
    for lease in rig.claim("q", most=10):
        rig.do(done(lease))
    rig.do(PromoteJobs(10, FOR_EVER))
    rig.check_counts()
    [share], [totals] = rig.rows(JOB_SHARE), rig.rows(JOB_TOTALS)
    assert (share.queued, share.scheduled, totals.waiting, totals.scheduled) == (0, 1, 1, 1)
