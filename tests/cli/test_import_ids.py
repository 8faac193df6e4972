"""`semel import sheratan` keeps the ids of jobs: they are told and accepted like those that were made here."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from semel.engine.clock import SystemWorld
from semel.store.open import open_store
from semel.store.protocol import Range
from semel.surfaces.jobs.tables import JOB, JOB_NAME
from semel.surfaces.schema import MIGRATIONS, TABLES
from tests.cli.command import Semel
from tests.cli.test_import import REQUEST, hash_of, record, rows, written
from tests.client.jobs_room import open_jobs
from tests.harness.postgres.shared import fresh_url
from tests.harness.server import RunningServer
from tests.harness.together import eventually
from tests.jobs.wire import Jobs

OTHER = "5f0c9be2-1d7a-4c53-8a0e-2b7f64c1d3aa"
LONGEST = "job_" + "aB3" * 20
SAME_FORM = "job_" + OTHER.replace("-", "")
"""An id that looks like ours, and is that of another store."""
MADE_HERE = "job_0190f0d26f7a8c3e9d5b1a2b3c4d5e6f"
"""The form that ids have which are made here."""
RECORDS = [
    record("done", job_id="job_123", request_id=REQUEST, cached_result={"ok": True, "result": {"value": 42}}),
    record("failed", "failed", job_id="job_Ab9", request_id=OTHER, cached_result={"ok": False, "error": {"code": "b"}}),
    record("running", "in_progress", job_id=LONGEST),
    record("waiting", "accepted", job_id=SAME_FORM),
    record("alike", "failed", job_id=MADE_HERE),
]
IDS = {one["key"]: one["job_id"] for one in RECORDS}


@pytest.fixture
def semel() -> Semel:
    return Semel("http://127.0.0.1:1")


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path, semel: Semel) -> str:
    place = f"sqlite:{tmp_path / 'data'}" if request.param == "sqlite" else fresh_url()
    assert semel.here("migrate", "--store", place).code == 0
    return place


@pytest.fixture
def data(tmp_path: Path, semel: Semel) -> str:
    """A store in a folder, where the kind does not matter."""
    assert semel.here("migrate", "--data", str(tmp_path / "data")).code == 0
    return f"sqlite:{tmp_path / 'data'}"


def served(url: str, tmp_path: Path, **settings: object) -> RunningServer:
    env = {f"SEMEL_{name}": str(value) for name, value in settings.items()}
    return RunningServer(tmp_path / "unused", env={"SEMEL_STORE": url, "SEMEL_JOBS_RETRY_JITTER": "0", **env})


def submit(jobs: Jobs, key: str, **fields: Any) -> dict[str, Any]:
    return jobs.submit("k", {"n": key}, key=key, **fields)


def names(url: str) -> list[str]:
    """The foreign ids that the store knows."""
    with closing(open_store(url, TABLES, MIGRATIONS, SystemWorld().wall_ms)) as store, store.read() as snapshot:
        return ["job_" + row.name.decode() for row in snapshot.range(Range(JOB_NAME, "", (), 100))]


def test_d7_an_imported_job_keeps_its_id_in_every_call_and_over_a_restart(
    semel: Semel, url: str, tmp_path: Path
) -> None:
    facts = semel.here("import", "sheratan", written(tmp_path, RECORDS), "--store", url, "--json").facts
    assert (facts["imported"], facts["new_ids"], facts["ids_taken"]) == (5, 0, 0)
    with served(url, tmp_path) as server, Jobs(server) as jobs:
        for key, job_id in IDS.items():
            assert submit(jobs, key)["job_id"] == job_id
        assert submit(jobs, "done")["request_id"] == REQUEST
        check_reads(jobs)
        check_work(jobs)
        check_tools(server)
        before = {key: jobs.get(job_id) for key, job_id in IDS.items()}
        server.stop()
        server.start()
        assert {key: jobs.get(job_id) for key, job_id in IDS.items()} == before
        assert jobs.lookup(request_id=OTHER)["job_id"] == "job_Ab9"
        for job_id in ("job_1234", "job_12", "job_AB9", "job_" + REQUEST.replace("-", ""), LONGEST + "a", "job_"):
            assert jobs.call("GET", f"/v1/jobs/{job_id}", expect=404)["error"] == "not_found"


def check_reads(jobs: Jobs) -> None:
    assert jobs.get("job_123")["result_url"] == "/v1/jobs/job_123/result"
    result = jobs.result("job_123")
    text = b'{"job_id":"job_123","ok":true,"result":{"value":42}}'
    assert (result["result"], result["integrity"]["sha256"]) == ({"value": 42}, sha256(text).hexdigest())
    assert jobs.lookup(idempotency_key="done")["job_id"] == "job_123"
    assert jobs.lookup(request_id=REQUEST)["job_id"] == "job_123"
    listed = [job["job_id"] for job in jobs.listed(limit=1)]
    assert sorted(listed) == sorted(IDS.values())
    assert jobs.cancel("job_123")["job_id"] == "job_123"
    collision = jobs.submit("k", {"n": "other"}, key="done", expect=409)
    assert collision["job_id"] == "job_123"


def check_work(jobs: Jobs) -> None:
    """A failed job is queued again and worked on: every call of a worker takes the id that the claim tells."""
    submit(jobs, "failed", on_failed="retry", queue="one", max_attempts=5)
    job = jobs.claim("one", claim_id="c")["jobs"][0]
    assert job["job_id"] == "job_Ab9"
    assert jobs.claim("one", claim_id="c")["jobs"] == [job]
    jobs.heartbeat(job, progress={"at": 1})
    assert jobs.step(job, "s", {"x": 1})["result"] == {"x": 1}
    assert jobs.defer(job)["job_id"] == "job_Ab9"
    job = jobs.claim_one("one")
    jobs.fail(job, retry_after_ms=0)
    job = jobs.claim_one("one")
    jobs.fail(job, retryable=False)
    assert jobs.dead_ids() == ["job_Ab9"]
    assert jobs.requeue("job_Ab9")["job_id"] == "job_Ab9"
    job = jobs.claim_one("one")
    assert jobs.step(job, "s")["known"] is True
    proof = sha256(b'{"job_id":"job_Ab9","ok":true,"result":7}').hexdigest()
    wrong = sha256(b'{"job_id":"job_Ab8","ok":true,"result":7}').hexdigest()
    jobs.complete(job, 7, integrity={"sha256": wrong}, expect=422)
    jobs.complete(job, 7, integrity={"sha256": proof})
    assert jobs.result("job_Ab9")["integrity"]["sha256"] == proof
    submit(jobs, "waiting", on_failed="retry", queue="two")
    job = jobs.claim_one("two")
    told = jobs.report(SAME_FORM, lease_token=job["lease_token"], result={"by": "mesh"})
    assert (told["job_id"], told["status"]) == (SAME_FORM, "completed")
    assert jobs.report("job_nowhere", result=1, expect=404)["error"] == "not_found"


def check_tools(server: RunningServer) -> None:
    here = Semel(server.url)
    assert here.here("jobs", "show", LONGEST).out.startswith(LONGEST)
    assert here.here("jobs", "result", "job_Ab9").out == "7\n"
    assert here.here("jobs", "cancel", LONGEST, "--json").facts["job_id"] == LONGEST
    asyncio.run(check_sdk(server.url))


async def check_sdk(url: str) -> None:
    async with open_jobs(url) as client:
        assert (await client.get("job_123")).job_id == "job_123"
        assert (await client.result("job_123")).result == {"value": 42}
        assert (await client.lookup(key="failed")).job_id == "job_Ab9"
        submitted = await client.submit("k", {"n": "running"}, key="running", on_failed="retry", queue="three")
        [lease] = (await client.claim("w", queues=["three"])).leases
        assert (submitted.job_id, lease.job_id) == (LONGEST, LONGEST)
        await client.heartbeat(lease)
        await client.complete(lease, {"by": "sdk"})
        assert (await client.result(LONGEST)).result == {"by": "sdk"}


def test_d7_retention_removes_the_id_with_its_job(semel: Semel, url: str, tmp_path: Path) -> None:
    file = written(tmp_path, RECORDS)
    assert semel.here("import", "sheratan", file, "--store", url).code == 0
    assert sorted(names(url)) == sorted({"job_123", "job_Ab9", LONGEST, SAME_FORM})
    settings = {"JOBS_IDEMPOTENCY_TTL_SEC": 1, "JOBS_RETENTION_SEC": 1, "SWEEP_INTERVAL_MS": 10}
    with served(url, tmp_path, **settings) as server, Jobs(server) as jobs:
        # The end of an imported job was set when it was imported; one that runs here again ends by today's settings.
        submit(jobs, "failed", on_failed="retry", queue="one")
        jobs.complete(jobs.claim_one("one"), 7)
        eventually(lambda: jobs.get("job_Ab9", expect=None).http == 404, "the job is gone")
    assert sorted(names(url)) == sorted({"job_123", LONGEST, SAME_FORM})
    again = semel.here("import", "sheratan", file, "--store", url, "--json").facts
    assert (again["imported"], again["already_there"], again["ids_taken"]) == (1, 4, 0)
    assert "job_Ab9" in names(url)


def test_d7_the_same_file_again_changes_nothing(semel: Semel, url: str, tmp_path: Path) -> None:
    file = written(tmp_path, RECORDS)
    assert semel.here("import", "sheratan", file, "--store", url).code == 0
    before = (rows(url), names(url))
    run = semel.here("import", "sheratan", file, "--store", url, "--json")
    assert (run.err, run.facts["imported"], run.facts["already_there"]) == ("", 0, 5)
    assert (rows(url), names(url)) == before


TAKEN = "the job id belongs here to another job or another outcome: lines "


def test_d7_an_id_that_stands_for_something_else_is_refused(semel: Semel, url: str, tmp_path: Path) -> None:
    assert semel.here("import", "sheratan", written(tmp_path, RECORDS), "--store", url).code == 0
    before = (rows(url), names(url))
    later = [
        record("another key", job_id="job_123"),
        record("done", job_id="job_123", cached_result={"ok": True, "result": "another result"}),
        record("another key of one of our form", job_id=MADE_HERE),
        record("a third one", job_id=SAME_FORM),
    ]
    (tmp_path / "later.jsonl").write_text("".join(f"{line}\n" for line in map(json.dumps, later)))
    run = semel.here("import", "sheratan", str(tmp_path / "later.jsonl"), "--store", url)
    assert (run.code, run.err) == (1, f"Error: Skipped, because {TAKEN}1, 2, 3, 4.\n")
    assert (rows(url), names(url)) == before
    whole = semel.here("import", "sheratan", str(tmp_path / "later.jsonl"), "--store", url, "--principal", "other")
    assert (whole.code, whole.err) == (1, f"Error: Skipped, because {TAKEN}1, 2, 3, 4.\n")
    assert (rows(url), names(url)) == before


def test_d7_an_id_twice_in_a_file_is_taken_by_the_first(semel: Semel, data: str, tmp_path: Path) -> None:
    records = [record("a", job_id="job_1"), record("b", job_id="job_1"), record("c", job_id="job_2")]
    (tmp_path / "twice.jsonl").write_text("".join(f"{line}\n" for line in map(json.dumps, records)))
    run = semel.here("import", "sheratan", str(tmp_path / "twice.jsonl"), "--store", data)
    assert (run.code, run.err) == (1, f"Error: Skipped, because {TAKEN}2.\n")
    assert names(data) == ["job_1", "job_2"]


def test_d7_an_id_of_a_job_that_was_made_here_is_never_taken(semel: Semel, data: str, tmp_path: Path) -> None:
    with served(data, tmp_path) as server, Jobs(server) as jobs:
        own = jobs.submit("k", key="own")["job_id"]
    before = rows(data)
    run = semel.here("import", "sheratan", written(tmp_path, [record("a", job_id=own)]), "--store", data)
    assert (run.code, TAKEN in run.err) == (1, True)
    assert rows(data) == before
    with served(data, tmp_path) as server, Jobs(server) as jobs:
        assert jobs.get(own)["state"] == "queued"


def test_d7_ids_that_cannot_be_kept_are_told(semel: Semel, data: str, tmp_path: Path) -> None:
    odd = ["550e8400-e29b-41d4-a716-446655440000", "job_a-b", LONGEST + "a", "job_", 7, "job_\u00e9"]
    records = [record(f"k{number}", job_id=job_id) for number, job_id in enumerate(odd)]
    run = semel.here("import", "sheratan", written(tmp_path, [*records, record("none", job_id=None)]), "--store", data)
    assert run.code == 0
    assert run.err == (
        "6 records have a job_id that is not job_ and 1 to 60 letters or digits: their jobs get new ids here.\n"
    )
    assert names(data) == []
    assert len([row for row in rows(data) if hasattr(row, "result")]) == 7


def test_d7_a_request_id_that_another_id_spells_is_not_shared(semel: Semel, data: str, tmp_path: Path) -> None:
    """A record without a job id is known by its request id: not where another store's id has the same digits."""
    first = [record("named", job_id=SAME_FORM, cached_result=1)]
    assert semel.here("import", "sheratan", written(tmp_path, first), "--store", data).code == 0
    second = [record("nameless", job_id=None, request_id=OTHER, cached_result=2, payload_hash=hash_of(n="nameless"))]
    assert semel.here("import", "sheratan", written(tmp_path, second), "--store", data).code == 0
    with served(data, tmp_path) as server, Jobs(server) as jobs:
        assert submit(jobs, "named")["job_id"] == SAME_FORM
        other = submit(jobs, "nameless")["job_id"]
        assert other != SAME_FORM
        assert (jobs.result(SAME_FORM)["result"], jobs.result(other)["result"]) == (1, 2)


def test_d7_stored_ids_begin_with_the_bytes_of_the_request_id(semel: Semel, data: str, tmp_path: Path) -> None:
    assert semel.here("import", "sheratan", written(tmp_path, RECORDS[:1]), "--store", data).code == 0
    with closing(open_store(data, TABLES, MIGRATIONS, SystemWorld().wall_ms)) as store, store.read() as snapshot:
        [job] = snapshot.range(Range(JOB, "", (), 10))
    assert job.id == bytes.fromhex(REQUEST.replace("-", "")) + b"123"
