"""Pages of lists are full until the list ends, and cost what they show: not what else is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any, cast

import pytest

from semel.engine.clock import SystemWorld
from semel.engine.reading import Reading
from semel.engine.soft_changes import SoftChanges
from semel.kernel.clock import Now
from semel.store.open import open_store
from semel.store.protocol import Range, Snapshot, Store
from semel.surfaces.jobs import lists
from semel.surfaces.jobs.lists import JobFilter, list_jobs
from semel.surfaces.jobs.rules.states import JobState
from semel.surfaces.jobs.tables import JOB
from semel.surfaces.schema import MIGRATIONS, TABLES
from tests.harness.postgres.shared import fresh_url
from tests.harness.server import RunningServer
from tests.jobs.filler import Filler
from tests.jobs.wire import Jobs

DONE_JOBS = 10_000
LATER_JOBS = 500
OTHERS = 12
"""Of jobs of other kinds, queues and callers, for every state."""
PAGE = 100
MOST_READ = 12 * PAGE
"""Rows and keys that a page may cost here, whatever the filter: a few lines of a kind and queue each."""

STATES = ("scheduled", "queued", "leased", "completed", "failed")


async def fill(store: Store) -> None:
    """Many jobs that are done, a few failed ones of the same kind before and behind them, and some of everything."""
    filler = Filler(store)
    try:
        await fill_common(filler)
        for kind, queue, principal in product((b"rare", b"odd"), (b"one", b"two"), (b"ann", b"bob")):
            await filler.submit(OTHERS, kind, queue, principal)
            await filler.end(await filler.claim(OTHERS, queue), ok=True)
            await filler.submit(OTHERS, kind, queue, principal)
            await filler.end(await filler.claim(OTHERS, queue), ok=False)
            await filler.submit(OTHERS, kind, queue, principal)
            await filler.claim(OTHERS, queue)
        for kind, queue, principal in product((b"rare", b"odd"), (b"one", b"two"), (b"ann", b"bob")):
            await filler.submit(OTHERS, kind, queue, principal, 3_600_000)
            await filler.cancel(await filler.submit(OTHERS, kind, queue, principal))
            await filler.submit(OTHERS, kind, queue, principal)
    finally:
        await filler.stop()


async def fill_common(filler: Filler) -> None:
    await filler.submit(1, b"common", b"default", b"default")
    await filler.end(await filler.claim(1, b"default"), ok=False)
    await filler.submit(DONE_JOBS, b"common", b"default", b"default")
    await filler.end(await filler.claim(DONE_JOBS, b"default"), ok=True)
    await filler.submit(2, b"common", b"default", b"default")
    await filler.end(await filler.claim(2, b"default"), ok=False)
    await filler.submit(LATER_JOBS, b"common", b"default", b"default", 3_600_000)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where a filled store is."""
    place = f"sqlite:{tmp_path_factory.mktemp('lists')}" if request.param == "sqlite" else fresh_url()
    with closing(opened(place)) as store:
        asyncio.run(fill(store))
    return place


def opened(url: str) -> Store:
    return open_store(url, TABLES, MIGRATIONS, SystemWorld().wall_ms)


class CountedSnapshot:
    """A snapshot that counts what it gives away."""

    def __init__(self, inside: Any) -> None:
        self._inside = inside
        self.read = 0

    @property
    def now_ms(self) -> int:
        now: int = self._inside.now_ms
        return now

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._inside, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            given = call(*args, **kwargs)
            self.read += sum(map(len, given)) if name == "keys_each" else 1 if name == "get" else len(given)
            return given

        return counted


@pytest.fixture
def filled(url: str) -> Iterator[Store]:
    with closing(opened(url)) as store:
        yield store


def look(store: Store, ask: Callable[[Reading], Any], later_ms: int = 0) -> tuple[Any, int]:
    """What a reader finds, and how many rows and keys that took."""
    with store.read() as snapshot:
        counted, now_ms = CountedSnapshot(snapshot), snapshot.now_ms + later_ms
        found = ask(Reading(cast(Snapshot, counted), SoftChanges(), Now(now_ms, now_ms, now_ms, now_ms)))
    return found, counted.read


FILTERS = [
    JobFilter(*given)
    for given in product(
        (None, b"default", b"ann", b"nobody"),
        (None, *STATES),
        (None, b"default", b"one", b"nowhere"),
        (None, b"common", b"rare", b"none"),
    )
]


@pytest.mark.parametrize("lines_at_once", [lists.LINES_AT_ONCE, 1])
def test_d8_every_filter_gives_exact_pages_for_what_they_show(
    filled: Store, monkeypatch: pytest.MonkeyPatch, lines_at_once: int
) -> None:
    monkeypatch.setattr(lists, "LINES_AT_ONCE", lines_at_once)
    monkeypatch.setattr(lists, "FEW", 0 if lines_at_once == 1 else lists.FEW)
    rows, _ = look(filled, lambda reading: reading.range(Range(JOB, "", (), 100_000)))
    now_ms = SystemWorld().wall_ms()
    assert len(rows) > DONE_JOBS
    for wanted in FILTERS[::7]:
        of_it = [job for job in rows if wanted.principal in (None, job.principal) and wanted.holds(job, now_ms)]
        expected = [job.id for job in reversed(of_it)]
        for limit, before in ((PAGE, None), (PAGE, expected[4] if len(expected) > 4 else None), (3, None)):
            page, read = look(filled, lambda reading: list_jobs(reading, wanted, before, limit))  # noqa: B023
            left = [job_id for job_id in expected if before is None or job_id < before]
            assert [job.id for job in page.jobs] == left[:limit], wanted
            assert page.next == (left[limit - 1] if len(left) > limit else None), wanted
            assert read <= MOST_READ, (wanted, limit, read)


def test_d8_every_state_is_found(filled: Store) -> None:
    for state in STATES:
        wanted = JobFilter(b"ann", state, b"one", b"odd")
        page, _ = look(filled, lambda reading: list_jobs(reading, wanted, None, PAGE))  # noqa: B023
        assert len(page.jobs) == (2 * OTHERS if state == "failed" else OTHERS), state
    assert {state.value for state in JobState if state.value} == set(STATES)


def test_d8_a_job_that_has_just_become_ready_is_listed_as_queued(filled: Store) -> None:
    """Nothing is written at that instant: it stands with the scheduled ones until it is promoted."""
    ready = JobFilter(b"ann", "queued", b"one", b"odd")
    for later_ms, counts in ((0, (OTHERS, OTHERS)), (7_200_000, (2 * OTHERS, 0))):
        pages = [
            look(filled, lambda reading: list_jobs(reading, wanted, None, PAGE), later_ms)[0]  # noqa: B023
            for wanted in (ready, ready._replace(state="scheduled"))
        ]
        assert tuple(len(page.jobs) for page in pages) == counts


def test_d8_a_list_of_too_many_kinds_and_queues_goes_on_in_short_pages(
    filled: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = JobFilter(None, "failed", b"one", None)
    whole, _ = look(filled, lambda reading: list_jobs(reading, wanted, None, 1_000))
    monkeypatch.setattr(lists, "MAX_LISTED_LINES", 1)
    monkeypatch.setattr(lists, "MAX_LISTED_ROWS", 1_000)
    found, before, pages = [], None, 0
    while pages == 0 or before is not None:
        page, read = look(filled, lambda reading: list_jobs(reading, wanted, before, 1_000))  # noqa: B023
        assert read <= 1_000 + 2
        found += page.jobs
        before, pages = page.next, pages + 1
    assert found == whole.jobs
    assert pages > 1


def test_d8_three_failed_jobs_among_ten_thousand_are_one_page(url: str, tmp_path: Path) -> None:
    with RunningServer(tmp_path / "unused", env={"SEMEL_STORE": url}) as server, Jobs(server) as jobs:
        for page in (jobs.page(state="failed", kind="common"), jobs.page(state="failed", queue="default")):
            assert (len(page["jobs"]), page["next"]) == (3, None)
            assert {job["state"] for job in page["jobs"]} == {"failed"}
        page = jobs.page(state="queued", kind="common")
        assert (page["jobs"], page["next"]) == ([], None)
        page = jobs.page(state="completed", kind="common", limit=1_000)
        assert (len(page["jobs"]), page["next"] is None) == (1_000, False)
        assert len(jobs.listed(limit=1_000, kind="common")) == DONE_JOBS + 3 + LATER_JOBS
