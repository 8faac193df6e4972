"""`semel import sheratan`: the keys of another store go on being honoured."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from semel.engine.clock import SystemWorld
from semel.engine.contract import EngineError, NotStoredError, OutcomeUnknownError
from semel.store.open import open_store
from semel.store.protocol import Store
from semel.surfaces.jobs import key_import
from semel.surfaces.jobs.settings import JobsSettings
from semel.surfaces.jobs.tables import JOB, JOB_RECORD
from semel.surfaces.schema import MIGRATIONS, TABLES
from tests.cli.command import Semel
from tests.cli.places import is_nothing_there
from tests.harness.postgres.shared import fresh_url
from tests.harness.server import RunningServer

REQUEST = "0190f0d2-6f7a-7c3e-9d5b-1a2b3c4d5e6f"


@pytest.fixture
def semel() -> Semel:
    return Semel("http://127.0.0.1:1")


@pytest.fixture(params=["sqlite", "postgres"])
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def url(kind: str, tmp_path: Path, semel: Semel) -> str:
    place = f"sqlite:{tmp_path / 'data'}" if kind == "sqlite" else fresh_url()
    assert semel.here("migrate", "--store", place).code == 0
    return place


@pytest.fixture
def data(tmp_path: Path, semel: Semel) -> str:
    """A store in a folder, where the kind does not matter."""
    assert semel.here("migrate", "--data", str(tmp_path / "data")).code == 0
    return f"sqlite:{tmp_path / 'data'}"


def hours_ago(hours: float) -> str:
    return (datetime.now(UTC) - timedelta(hours=hours)).isoformat()


def hash_of(**params: Any) -> str:
    return sha256(json.dumps({"kind": "k", "params": params}, separators=(",", ":")).encode()).hexdigest()


def record(key: str, status: str = "completed", hours: float = 1, **more: Any) -> dict[str, Any]:
    return {
        "key": key,
        "payload_hash": hash_of(n=key),
        "request_id": f"req-{key}",
        "job_id": f"job_{key.encode().hex()}",
        "status": status,
        "created_utc": hours_ago(hours + 1),
        "last_seen_utc": hours_ago(hours),
        **more,
    }


RECORDS = [
    record("done", request_id=REQUEST, cached_result={"ok": True, "result": {"value": 42}}),
    record("failed", "failed", cached_response={"ok": False, "error": {"code": "boom"}}),
    record("running", "in_progress"),
    record("waiting", "accepted"),
    record("old", hours=24.01),
]


def written(folder: Path, records: Any) -> str:
    path = folder / "idempotency_store.json"
    path.write_text(json.dumps(records, indent=1))
    return str(path)


def rows(url: str) -> list[Any]:
    with closing(open_store(url, TABLES, MIGRATIONS, SystemWorld().wall_ms)) as store, store.read() as snapshot:
        found: list[Any] = list(snapshot.page(JOB_RECORD, 0, None, 10_000, 2**40))
        return [*found, *snapshot.page(JOB, 0, None, 10_000, 2**40)]


def submit(server: RunningServer, key: str, n: str) -> httpx.Response:
    body = {"idempotency_key": key, "kind": "k", "params": {"n": n}}
    return httpx.post(f"{server.url}/mesh/submit_request", json=body)


def test_imported_keys_are_answered_as_before(semel: Semel, url: str, kind: str, tmp_path: Path) -> None:
    file = written(tmp_path, RECORDS)
    dry = semel.here("import", "sheratan", file, "--store", url, "--dry-run", "--json").facts
    assert (dry["read"], dry["to_import"], dry["imported"], dry["dry_run"]) == (5, 4, 0, True)
    assert rows(url) == []
    done = semel("import", "sheratan", file, "--store", url, "--json").facts
    counts = {name: done[name] for name in ("imported", "unknown_outcome", "already_there", "expired", "bad", "taken")}
    assert list(counts.values()) == [4, 2, 0, 1, 0, 0]
    before = rows(url)
    again = semel.here("import", "sheratan", file, "--store", url)
    assert (again.code, again.err) == (0, "")
    assert again.out.startswith("Imported 0 of 5 keys into ")
    assert again.out.endswith(" for default (0 with unknown outcome); 4 already there, 1 expired, 0 bad.\n")
    assert rows(url) == before

    env = {"SEMEL_STORE": url, "SEMEL_SWEEP_INTERVAL_MS": "10"}
    with RunningServer(tmp_path / "unused", env=env) as server:
        told = submit(server, "done", "done").json()
        assert (told["status"], told["dedup"], told["request_id"]) == ("completed", True, REQUEST)
        assert told["cached_result"] == {"ok": True, "result": {"value": 42}}
        assert told["job_id"] == RECORDS[0]["job_id"]
        result = httpx.get(f"{server.url}/v1/jobs/{told['job_id']}/result").json()
        assert result["result"] == {"value": 42}
        assert Semel(server.url).here("jobs", "result", REQUEST).out == '{"value": 42}\n'
        failed = submit(server, "failed", "failed").json()
        assert (failed["status"], failed["cached_result"]["error"]) == ("failed", {"code": "boom"})
        for key in ("running", "waiting"):
            unknown = submit(server, key, key).json()
            assert (unknown["status"], unknown["cached_result"]["error"]["outcome"]) == ("failed", "unknown")
        assert submit(server, "done", "other").status_code == 409
        fresh = submit(server, "old", "old").json()
        assert (fresh["status"], fresh["dedup"]) == ("accepted", False)
        metrics = httpx.get(f"{server.url}/metrics").json()
        assert (metrics["idempotency_store_size"], metrics["queue_depth"]) == (5, 1)
        who = f"Another server (process {server.pid}) is using " if kind == "sqlite" else "A server is using "
        in_use = semel.here("import", "sheratan", file, "--store", url)
        assert (in_use.code, in_use.err.startswith(f"Error: {who}")) == (1, True)


def test_every_layout_is_the_same_import(semel: Semel, data: str, tmp_path: Path) -> None:
    by_key = {one["key"]: one for one in RECORDS}
    lines = "".join(json.dumps(one) + "\n" for one in RECORDS)
    first = semel.here("import", "sheratan", "-", "--store", data, "--json", stdin=lines.encode()).facts
    assert first["imported"] == 4
    for records in (RECORDS, by_key, {"version": 1, "records": RECORDS}, {"records": by_key}):
        facts = semel.here("import", "sheratan", written(tmp_path, records), "--store", data, "--json").facts
        assert (facts["read"], facts["imported"], facts["already_there"]) == (5, 0, 4)


def test_bad_records_stop_everything_unless_they_are_skipped(semel: Semel, data: str, tmp_path: Path) -> None:
    secret = "secret-key"
    bad = [record("a"), record(secret, "done"), record("b"), record(secret, payload_hash="x"), 7]
    path = tmp_path / "store.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in bad) + "{broken\n")
    run = semel.here("import", "sheratan", str(path), "--store", data)
    assert (run.code, run.raw) == (1, b"")
    assert run.err.splitlines() == [
        "Line 2: status must be one of accepted, in_progress, completed, failed.",
        "Line 4: payload_hash is not a SHA-256 of 64 hexadecimal digits.",
        "Line 5: it is not a JSON object.",
        "Line 6: it is not a JSON object that can be read (syntax).",
        "Error: 4 records cannot be read, so nothing was imported: correct the file, or give --skip-bad.",
    ]
    assert rows(data) == []
    skipped = semel.here("import", "sheratan", str(path), "--store", data, "--skip-bad")
    assert (skipped.code, len(skipped.err.splitlines())) == (0, 4)
    assert skipped.out.startswith("Imported 2 of 6 keys")
    assert secret not in run.err + skipped.err + skipped.out
    many = semel.here("import", "sheratan", written(tmp_path, [7] * 25), "--store", data)
    assert many.err.splitlines()[20] == "And 5 more."


def test_the_last_record_of_a_key_counts_and_ids_are_not_shared(semel: Semel, data: str, tmp_path: Path) -> None:
    records = [
        record("a", "accepted", request_id=REQUEST),
        record("a", request_id=REQUEST, cached_result=1),
        record("b", request_id=REQUEST, cached_result=2),
    ]
    facts = semel.here("import", "sheratan", written(tmp_path, records), "--store", data, "--json").facts
    assert (facts["read"], facts["imported"], facts["unknown_outcome"]) == (3, 2, 0)
    later = [record("c", request_id=REQUEST, cached_result=3)]
    assert semel.here("import", "sheratan", written(tmp_path, later), "--store", data, "--json").facts["imported"] == 1
    jobs = [row for row in rows(data) if hasattr(row, "result")]
    assert sorted(job.result for job in jobs) == [b"1", b"2", b"3"]


def test_a_key_that_stands_for_something_else_is_left_alone(semel: Semel, data: str, tmp_path: Path) -> None:
    semel.here("import", "sheratan", written(tmp_path, [record("a"), record("b")]), "--store", data)
    before = rows(data)
    other = [record("b"), record("a", payload_hash=hash_of(n="other"))]
    (tmp_path / "other.jsonl").write_text("".join(json.dumps(one) + "\n" for one in other))
    run = semel.here("import", "sheratan", str(tmp_path / "other.jsonl"), "--store", data)
    assert (run.code, run.err) == (
        1,
        "Error: Skipped, because the key was used here for another payload: lines 2.\n",
    )
    assert rows(data) == before
    nameless = written(tmp_path, [one | {"job_id": None} for one in other])
    mine = ("import", "sheratan", nameless, "--store", data, "--principal", "somebody")
    assert semel.here(*mine, "--json").facts["imported"] == 2


def test_many_records_go_in_batches_with_a_bar(semel: Semel, data: str, tmp_path: Path) -> None:
    large = {"ok": True, "result": "x" * 20_000}
    records = [record(f"k{number}") for number in range(450)] + [
        record(f"l{n}", cached_result=large) for n in range(60)
    ]
    shown = semel.on_terminal("import", "sheratan", written(tmp_path, records), "--store", data)
    assert (shown.code, b"Importing  [####" in shown.raw, b"100%" in shown.raw) == (0, True, True)
    assert b"Imported 510 of 510 keys" in shown.raw
    assert len(rows(data)) == 1_020


def test_more_keys_than_the_store_holds_are_refused(semel: Semel, data: str, tmp_path: Path) -> None:
    file = written(tmp_path, [record("a"), record("b"), record("c")])
    run = semel("import", "sheratan", file, "--store", data, env={"SEMEL_JOBS_IDEMPOTENCY_STORE_MAX_ITEMS": "2"})
    assert (run.code, run.raw) == (1, b"")
    assert "There are 0 keys and 3 to come, and the store holds 2: raise SEMEL_JOBS_" in run.err
    assert rows(data) == []


def test_keys_expire_as_the_server_is_set_up(semel: Semel, data: str, tmp_path: Path) -> None:
    env = {"SEMEL_JOBS_IDEMPOTENCY_TTL_SEC": "1800"}
    run = semel("import", "sheratan", written(tmp_path, RECORDS), "--store", data, "--json", env=env)
    assert (run.facts["imported"], run.facts["expired"]) == (0, 5)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (OutcomeUnknownError("The commit failed."), "run this again; no key is imported twice."),
        (NotStoredError("The disk is full."), "Not all keys were stored: run this again."),
    ],
)
def test_failures_are_told_as_they_are(
    semel: Semel, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: EngineError, sentence: str
) -> None:
    async def fail(store: Store, settings: JobsSettings, records: list[Any], advance: object) -> None:
        raise error

    monkeypatch.setattr(key_import, "import_records", fail)
    run = semel.here("import", "sheratan", written(tmp_path, RECORDS), "--store", data)
    assert (run.code, run.raw) == (1, b"")
    assert run.err.startswith(f"Error: {error} ")
    assert run.err.endswith(f"{sentence}\n")


def test_errors_are_one_sentence(semel: Semel, data: str, tmp_path: Path) -> None:
    file = written(tmp_path, RECORDS)
    (tmp_path / "broken.json").write_text("[1,")
    for args, sentence in (
        ([file, "--store", "memory:"], "it cannot keep imported keys."),
        ([file, "--store", f"sqlite:{tmp_path}/nowhere"], "/nowhere: create a store with `semel migrate`."),
        ([file, "--store", "postgresql://me:secret@127.0.0.1:1/db"], "PostgreSQL: "),
        ([file, "--config", str(tmp_path / "none.toml")], "cannot be read"),
        ([str(tmp_path / "none.json"), "--store", data], "cannot be read: No such file or directory."),
        ([str(tmp_path / "broken.json"), "--store", data], "The file cannot be imported: it is not JSON at line 1."),
    ):
        run = semel.here("import", "sheratan", *args)
        assert (run.code, run.raw) == (1, b"")
        assert run.err.startswith("Error: ")
        assert run.err.count("\n") == 1
        assert sentence in run.err
        assert "secret" not in run.err
    assert is_nothing_there(f"sqlite:{tmp_path}/nowhere")
