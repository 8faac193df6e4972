"""Unique and debounced submissions: what stands for a further one, at each instant and in each state."""

from __future__ import annotations

import pytest

from semel.surfaces.jobs.commands import CancelJob, JobAdmitted, JobRefused, SingleRule
from semel.surfaces.jobs.rules.links import JobLinks, links_of, pack_links
from semel.surfaces.jobs.tables import JOB, JOB_ALIAS, JOB_PART, JOB_RECORD, JOB_UNIQUE
from semel.surfaces.jobs.wire.relations import ACTIVE
from tests.jobs.rig import HOUR_MS, OPEN, Rig, done, draft, failed

DAY_MS = 24 * HOUR_MS
UNIQUE = SingleRule(b"u", "u", ACTIVE)
WINDOW = SingleRule(b"u", "u", ACTIVE | {"completed"}, 1_000)
DEBOUNCE = SingleRule(b"d", "d", debounces=True, delay_ms=500, max_ms=1_200)


def submit(rig: Rig, single: SingleRule | None, key: str = "", **fields: object) -> JobAdmitted:
    [answer] = rig.submit([draft(key=key, single=single, **fields)])  # type: ignore[arg-type]
    assert isinstance(answer, JobAdmitted), answer
    return answer


def bring(rig: Rig, state: str) -> None:
    """Bring the one job into this state."""
    if state in ("leased", "completed", "failed"):
        [lease] = rig.claim()
        if state != "leased":
            rig.do(done(lease) if state == "completed" else failed(lease))


@pytest.mark.parametrize("state", ["queued", "leased", "completed", "failed"])
@pytest.mark.parametrize(
    ("single", "stands"),
    [
        (UNIQUE, {"queued", "leased"}),
        (WINDOW, {"queued", "leased", "completed"}),
        (SingleRule(b"u", "u", frozenset({"failed"})), {"failed"}),
        (SingleRule(b"u", "u", frozenset({"completed", "queued"}), 1_000), {"queued", "completed"}),
    ],
    ids=["unique", "window", "failed only", "some in a window"],
)
def test_a_job_stands_for_others_in_the_states_that_are_asked_for(
    single: SingleRule, stands: set[str], state: str
) -> None:
    rig = Rig()
    first = submit(rig, single)
    bring(rig, state)
    again = submit(rig, single, payload="other")
    assert (again.job.id == first.job.id) is (state in stands)
    assert again.rule == ("J10" if state in stands else "J1")


@pytest.mark.parametrize(("after_ms", "stands"), [(0, True), (999, True), (1_000, False), (5_000, False)])
def test_a_window_is_over_to_the_millisecond(after_ms: int, stands: bool) -> None:
    rig = Rig()
    first = submit(rig, WINDOW)
    rig.world.pass_ms(after_ms)
    assert (submit(rig, WINDOW).job.id == first.job.id) is stands


def test_the_latest_job_of_a_key_stands_and_the_window_is_that_of_the_asker() -> None:
    rig = Rig()
    submit(rig, WINDOW)
    rig.world.pass_ms(1_000)
    second = submit(rig, WINDOW)
    rig.world.pass_ms(900)
    assert submit(rig, WINDOW).job.id == second.job.id
    assert submit(rig, WINDOW._replace(for_ms=900)).job.id not in (second.job.id,)


def test_the_key_of_a_caller_is_its_own() -> None:
    rig = Rig()
    assert submit(rig, UNIQUE).job.id != submit(rig, UNIQUE, principal="bob").job.id


def test_a_full_queue_refuses_no_submission_that_makes_no_job_and_a_full_store_of_keys_does() -> None:
    rig = Rig(OPEN._replace(queued=OPEN.queued._replace(all=1), max_records=1))
    first = submit(rig, UNIQUE, key="a")
    assert submit(rig, UNIQUE).job.id == first.job.id
    [told] = rig.submit([draft(key="b", single=UNIQUE)])
    assert isinstance(told, JobRefused)
    assert told.refusal.name == "idempotency_store_full"
    assert [row.key for row in rig.rows(JOB_RECORD)] == [b"a"]


def test_an_alias_lives_a_key_s_life_after_the_end_of_its_job_and_goes_with_it() -> None:
    rig = Rig(OPEN._replace(retention_ms=0, key_ttl_ms=HOUR_MS))
    first = submit(rig, UNIQUE)
    assert submit(rig, UNIQUE, key="b").alias == 1
    rig.do(CancelJob(first.job.id, b"ann", False, False))
    rig.world.pass_ms(HOUR_MS - 1)
    rig.sweep()
    assert submit(rig, UNIQUE, key="b").job.id == first.job.id
    rig.world.pass_ms(1)
    assert submit(rig, UNIQUE, key="b").rule == "J2"
    rig.sweep()
    assert [job.id for job in rig.rows(JOB)] == [row.job for row in rig.rows(JOB_UNIQUE)] != [first.job.id]
    assert rig.rows(JOB_ALIAS) == []
    rig.check_counts()


def test_an_alias_to_a_job_that_ended_long_ago_lives_a_key_s_life() -> None:
    rig = Rig(OPEN._replace(retention_ms=0, key_ttl_ms=HOUR_MS))
    window = WINDOW._replace(for_ms=DAY_MS)
    first = submit(rig, window)
    rig.do(done(rig.claim()[0]))
    rig.world.pass_ms(DAY_MS - 1)
    rig.sweep()
    assert submit(rig, window, key="b").job.id == first.job.id
    rig.world.pass_ms(HOUR_MS - 1)
    rig.sweep()
    assert submit(rig, window, key="b").job.id == first.job.id
    rig.world.pass_ms(1)
    rig.sweep()
    assert (rig.rows(JOB), rig.rows(JOB_RECORD), rig.rows(JOB_ALIAS), rig.rows(JOB_UNIQUE)) == ([], [], [], [])


def test_a_job_with_more_aliases_than_one_sweep_deletes_goes_with_the_last_of_them() -> None:
    rig = Rig(OPEN._replace(retention_ms=0, key_ttl_ms=1_000))
    rig.submit(draft(key=f"k{number}", single=UNIQUE) for number in range(1_203))
    assert (len(rig.rows(JOB)), len(rig.rows(JOB_ALIAS))) == (1, 1_202)
    rig.do(done(rig.claim()[0]))
    rig.world.pass_ms(1_000)
    rig.sweep()
    assert (rig.rows(JOB), rig.rows(JOB_RECORD), rig.rows(JOB_ALIAS), rig.rows(JOB_UNIQUE)) == ([], [], [], [])
    rig.check_counts()


@pytest.mark.parametrize(
    ("pushes", "starts"), [([], 500), ([499], 999), ([400, 400], 1_200), ([499, 499], 1_200), ([300, 300, 300], 1_200)]
)
def test_each_submission_moves_the_start_of_a_debounced_job_up_to_a_limit(pushes: list[int], starts: int) -> None:
    rig = Rig()
    first = submit(rig, DEBOUNCE, delay_ms=500)
    began = rig.world.wall
    for number, after_ms in enumerate(pushes):
        rig.world.pass_ms(after_ms)
        told = submit(rig, DEBOUNCE, delay_ms=500, params=b'{"n":%d}' % number)
        assert (told.rule, told.job.id, told.alias) == ("J11", first.job.id, 2)
    rig.world.pass_ms(began + starts - rig.world.wall - 1)
    assert rig.claim() == ()
    rig.world.pass_ms(1)
    [lease] = rig.claim()
    assert lease.job.params == (b'{"n":%d}' % (len(pushes) - 1) if pushes else b"{}")
    rig.check_counts()


def test_large_params_are_replaced_by_small_ones_and_back() -> None:
    rig = Rig()
    large = b'{"a":"%s"}' % (b"x" * 3_000)
    submit(rig, DEBOUNCE, delay_ms=500)
    for params in (large, large[:-2] + b'y"}', b"{}", large):
        told = submit(rig, DEBOUNCE, delay_ms=500, params=params)
        assert told.job.params_bytes == len(params)
        assert [row.data for row in rig.rows(JOB_PART)] == ([params] if len(params) > 100 else [])


@pytest.mark.parametrize("single", [UNIQUE, DEBOUNCE], ids=["unique", "debounce"])
def test_a_batch_of_a_hundred_is_decided_without_loading_again(single: SingleRule) -> None:
    rig = Rig()
    large = b'{"a":"%s"}' % (b"x" * 3_000)
    for params in (b"{}", large, b"{}"):
        rig.submit(
            draft(
                f"q{number % 25}", key=f"{len(params)} {number}", params=params, single=single._replace(name=b"%d" % n)
            )
            for number in range(100)
            for n in [number % 50]
        )
        assert rig.reruns == 0
    assert len(rig.rows(JOB)) == 50
    rig.check_counts()


def test_links_survive_their_stored_form_and_none_take_no_byte() -> None:
    assert pack_links(JobLinks()) == b""
    assert links_of(b"") == JobLinks()
    links = JobLinks("00ff", "k\u00e9", True, 17, True)
    assert links_of(pack_links(links)) == links
