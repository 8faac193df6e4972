"""Jobs from before lists had indexes, and ids from elsewhere names, are carried along."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, NamedTuple, cast, get_type_hints

from semel.engine.clock import SystemWorld
from semel.store.memory import MemoryStore
from semel.store.protocol import Range, Store
from semel.store.table import Table
from semel.surfaces.jobs.migrations import JOB_LISTS_MIGRATION
from semel.surfaces.jobs.tables import (
    DONE,
    JOB,
    JOB_NAME,
    LISTED_ACTIVE,
    LISTED_COMPLETED,
    LISTED_FAILED,
    LISTED_SCHEDULED,
    NOT_COUNTED,
    WAITING,
    JobRow,
)
from semel.surfaces.schema import MIGRATIONS, TABLES
from tests.cli.command import Semel
from tests.cli.test_import import record
from tests.jobs.filler import Filler
from tests.jobs.wire import Jobs
from tests.running import RunningServer
from tests.store.conformance import PersistentPlace, everything, write

STATES = {"scheduled": 7, "queued": 5, "leased": 3, "completed": 40, "failed": 6}
HOUR_MS = 3_600_000

_hints = [hint for hint in get_type_hints(JobRow, include_extras=True).items() if hint[0] != "listed"]
OLD_JOB: Table[Any] = Table("job", cast(Any, NamedTuple)("OldJobRow", _hints), key=1, bulky=True)
"""As it was."""


async def fill(store: Store) -> None:
    """Jobs in every state, made by the rules of today."""
    filler = Filler(store)
    await filler.submit(STATES["completed"], b"k", b"q", b"default")
    await filler.end(await filler.claim(STATES["completed"], b"q"), ok=True)
    await filler.submit(STATES["failed"] - 2, b"k", b"q", b"default")
    await filler.end(await filler.claim(STATES["failed"] - 2, b"q"), ok=False)
    await filler.cancel(await filler.submit(2, b"k", b"q", b"default"))
    await filler.submit(STATES["leased"], b"k", b"q", b"default")
    await filler.claim(STATES["leased"], b"q")
    await filler.submit(STATES["queued"], b"k", b"q", b"default")
    await filler.submit(STATES["scheduled"], b"k", b"q", b"default", HOUR_MS)
    await filler.stop()


def old_data(lasting: PersistentPlace) -> list[JobRow]:
    """Fill a place as the schema was before; the jobs as they are to be afterwards."""
    model = MemoryStore(TABLES, SystemWorld().wall_ms)
    asyncio.run(fill(model))
    with model.read() as snapshot:
        kept = {table: snapshot.range(Range(table, "", (), 10_000)) for table in TABLES if not table.generational}
    jobs: list[JobRow] = list(kept.pop(JOB))
    others = [table for table in TABLES if table not in (JOB, JOB_NAME)]
    store = lasting.open((*others, OLD_JOB), MIGRATIONS[: JOB_LISTS_MIGRATION.number - 1])
    rows: list[Any] = [(table, row) for table, some in kept.items() for row in some]
    write(store, [*rows, *((OLD_JOB, OLD_JOB.row(*row[:-1])) for row in jobs)])
    return jobs


def test_d8_jobs_from_before_stand_where_lists_find_them(lasting: PersistentPlace) -> None:
    jobs = old_data(lasting)
    counts = {where: sum(job.listed == where for job in jobs) for where in {job.listed for job in jobs}}
    assert counts == {LISTED_SCHEDULED: 7, LISTED_ACTIVE: 8, LISTED_COMPLETED: 40, LISTED_FAILED: 6}
    assert everything(lasting.reopen(TABLES, MIGRATIONS), JOB) == sorted(jobs)


def test_d8_jobs_that_were_not_counted_yet_are_listed_with_scheduled_ones(lasting: PersistentPlace) -> None:
    """Data that went from before those counts to this schema at once: the server counts it when it has started."""
    jobs = [job._replace(counted=NOT_COUNTED) for job in old_data(lasting)]
    lasting.close()
    others = [table for table in TABLES if table not in (JOB, JOB_NAME)]
    store = lasting.open((*others, OLD_JOB), MIGRATIONS[: JOB_LISTS_MIGRATION.number - 1])
    write(store, updates=[(OLD_JOB, OLD_JOB.row(*row[:-1])) for row in jobs])
    for job in everything(lasting.reopen(TABLES, MIGRATIONS), JOB):
        ended = LISTED_FAILED if job.reason else LISTED_COMPLETED
        assert job.listed == (
            ended if job.phase == DONE else LISTED_SCHEDULED if job.phase == WAITING else LISTED_ACTIVE
        )


def test_d8_a_server_lists_and_reads_jobs_from_before(lasting: PersistentPlace, tmp_path: Path) -> None:
    made = old_data(lasting)
    lasting.close()
    file = tmp_path / "store.json"
    file.write_text(json.dumps([record("imported", job_id="job_123", cached_result=7)]))
    with RunningServer(tmp_path / "unused", env={"SEMEL_STORE": lasting.url}) as server, Jobs(server) as jobs:
        for state, count in STATES.items():
            page = jobs.page(state=state, kind="k", queue="q")
            assert (len(page["jobs"]), page["next"]) == (count, None), state
        ids = [job["job_id"] for job in jobs.listed(limit=10, kind="k")]
        assert ids == [f"job_{job.id.hex()}" for job in sorted(made, reverse=True)]
        for job_id in ids:
            jobs.get(job_id)
        server.stop()
        assert Semel("http://127.0.0.1:1").here("import", "sheratan", str(file), "--store", lasting.url).code == 0
        server.start()
        assert jobs.get("job_123")["state"] == "completed"
        assert len(jobs.page(state="completed", queue="default")["jobs"]) == 1
