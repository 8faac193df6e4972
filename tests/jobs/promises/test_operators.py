"""What an operator sees: metrics in both forms, audit lines, settings under other names, and no secret anywhere."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest

from tests.harness.server import READY_SECONDS, RunningServer
from tests.harness.together import eventually, log_of
from tests.jobs.wire import PATH, Jobs, Message, fresh, serving

MINUTE = [
    "idempotent_hits",
    "idempotent_in_progress",
    "idempotent_completed",
    "idempotent_failed",
    "idempotent_collisions",
    "queue_drop",
    "inflight_saturated",
    "retry_scheduled",
    "retry_rate",
    "reaped_leases",
    "integrity_verified",
    "integrity_missing",
    "integrity_fail",
    "auth_success_active",
    "auth_success_next",
    "auth_fail",
    "auth_fail_old_token",
    "lease_fenced",
    "accepted",
    "completed",
    "failed",
    "idempotency_evicted",
]
NOW = [
    "idempotency_store_size",
    "queue_depth",
    "inflight",
    "inflight_jobs",
    "ready_to_dispatch",
    "dlq_size",
    "backpressure_active",
    "oldest_ready_age_sec",
]
SERIES = [
    "semel_jobs_idempotency_collisions_total",
    "semel_jobs_idempotency_records",
    "semel_jobs_queue_depth",
    "semel_jobs_inflight",
    "semel_jobs_ready",
    "semel_jobs_dead",
    "semel_jobs_backpressure",
    "semel_jobs_saturated_total",
    "semel_jobs_retries_total",
    "semel_jobs_leases_reaped_total",
    "semel_jobs_lease_fenced_total",
    "semel_jobs_submitted_total",
    "semel_jobs_idempotency_evicted_total",
    "semel_jobs_oldest_ready_seconds",
    "semel_jobs_submit_seconds_count",
    "semel_jobs_wait_seconds_count",
    "semel_jobs_run_seconds_count",
]
LABELLED = {
    "semel_jobs_joined_total": {"reason"},
    "semel_jobs_idempotent_total": {"outcome"},
    "semel_jobs_refused_total": {"reason"},
    "semel_jobs_integrity_total": {"outcome"},
    "semel_jobs_finished_total": {"status"},
    "semel_auth_total": {"outcome"},
}


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    """A server whose counts are the tests' own."""
    with serving(tmp_path_factory.mktemp("watched") / "data", store="sqlite") as served:
        yield served


# -- metrics ----------------------------------------------------------------------------------------------------------


def test_27_metrics_are_json_unless_text_is_asked_for(watched: Jobs) -> None:
    for accept in ("*/*", "application/json", "application/json, */*;q=0.1"):
        answer = watched.http.get("/metrics", headers={"Accept": accept})
        assert answer.headers["Content-Type"].startswith("application/json")
        body = answer.json()
        assert {f"{name}_1m" for name in MINUTE} | set(NOW) <= set(body)
        assert not [name for name, value in body.items() if not isinstance(value, int | float)]
    for accept, kind in (
        ("text/plain", "text/plain"),
        ("text/plain;version=0.0.4;q=0.5,*/*;q=0.1", "text/plain"),
        ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", "application/openmetrics-text"),
    ):
        answer = watched.http.get("/metrics", headers={"Accept": accept})
        assert answer.headers["Content-Type"].startswith(kind)


def test_27_the_text_form_has_every_series_and_only_labels_of_closed_sets(watched: Jobs, queue: str) -> None:
    watched.submit("k", {}, key=fresh("key"), queue=queue)
    watched.complete(watched.claim_one(queue), 1)
    samples = watched.prometheus()
    names = {re.split(r"[{ ]", sample, maxsplit=1)[0] for sample in samples}
    assert set(SERIES) <= names
    for sample in samples:
        name, _, labels = sample.partition("{")
        if name.startswith(("semel_jobs_", "semel_auth_")):
            given = set(re.findall(r'(\w+)="', labels)) - {"le"}
            assert given == LABELLED.get(name, set()), sample


def test_27_hits_are_the_sum_of_their_kinds(watched: Jobs, queue: str) -> None:
    before = watched.metrics()
    keys = [fresh("key") for _ in range(3)]
    for key in keys:
        watched.submit("k", {}, key=key, queue=queue)
    hit = partial(watched.submit, "k", {})
    hit(key=keys[0])
    watched.complete(watched.claim_one(queue), 1)
    watched.fail(watched.claim_one(queue), retryable=False)
    watched.fail(watched.claim_one(queue), retryable=False)
    for _ in range(2):
        hit(key=keys[0])
    for _ in range(3):
        hit(key=keys[1])
    hit(key=keys[2], on_failed="retry")
    after = watched.metrics()
    seen = {name: after[f"{name}_1m"] - before[f"{name}_1m"] for name in MINUTE}
    assert seen["idempotent_hits"] == 7
    assert seen["idempotent_in_progress"] == 2
    assert seen["idempotent_completed"] == 2
    assert seen["idempotent_failed"] == 3
    assert (seen["accepted"], seen["completed"], seen["failed"]) == (3, 1, 2)
    watched.cancel(watched.claim_one(queue)["job_id"], force=True)


def test_gauges_follow_the_jobs(watched: Jobs, queue: str) -> None:
    before = watched.metrics()
    watched.submit("k", {}, queue=queue)
    watched.submit("k", {}, queue=queue)
    late = watched.submit("k", {}, queue=queue, delay_ms=3_600_000)
    job = watched.claim_one(queue)
    after = watched.metrics()
    seen = [after[name] - before[name] for name in ("queue_depth", "ready_to_dispatch", "inflight", "inflight_jobs")]
    assert seen == [1, 1, 1, 1]
    assert after["scheduled_jobs"] - before["scheduled_jobs"] == 1
    watched.fail(job, retry_after_ms=3_600_000)
    after = watched.metrics()
    assert after["retry_scheduled_1m"] == after["retry_rate_1m"] == before["retry_scheduled_1m"] + 1
    watched.cancel(job["job_id"])
    watched.cancel(late["job_id"])
    watched.complete(watched.claim_one(queue), 1)
    after = watched.metrics()
    assert [after[name] - before[name] for name in ("queue_depth", "inflight")] == [0, 0]


def test_27_reading_changes_nothing(watched: Jobs) -> None:
    first, second = watched.metrics(), watched.metrics()
    names = [f"{name}_1m" for name in MINUTE if not name.startswith("auth_")]
    assert [first[name] for name in names] == [second[name] for name in names]


# -- secrets ----------------------------------------------------------------------------------------------------------


def test_28_a_key_is_never_written_whole(watched: Jobs, queue: str) -> None:
    for key, prefix in (("abcdefghij", "abcdefgh"), ("abcdefgh", "abcd"), ("ab", "a"), ("\u20ac\u00fcx", "\u20ac")):
        first = watched.submit("k", {}, key=key, queue=queue)
        watched.submit("k", {}, key=key, queue=queue)
        refused = watched.submit("k", {"n": 1}, key=key, queue=queue, expect=409)
        assert refused["key_prefix"] == prefix
        assert watched.audited_first("IDEMPOTENCY_KEY_COLLISION", job_id=first["job_id"])[0]["key_prefix"] == prefix
        assert watched.audited("IDEMPOTENCY_HIT", job_id=first["job_id"])["key_prefix"] == prefix


def secrets_of(run: str) -> dict[str, str]:
    return {name: f"planted-{name}-{run}" for name in ("token", "key", "param", "result", "error", "step", "client")}


def live_through(jobs: Jobs, secret: dict[str, str], queue: str) -> None:
    """Everything that writes lines: hits, collisions, refusals, retries, conflicts, cancellation, release."""
    submit = partial(jobs.submit, "k", {"p": secret["param"]}, queue=queue, client={"node_id": secret["client"]})
    submit(key=secret["key"])
    submit(key=secret["key"])
    jobs.submit("k", {"q": secret["param"]}, key=secret["key"], expect=409)
    jobs.submit("k", secret["param"], key=secret["key"], expect=400)
    jobs.submit("k", {}, key=secret["key"], queue=[secret["param"]], expect=400)
    jobs.submit_text(f'{{"kind":"k","params":{{"p":"{secret["param"]}"', expect=400)
    jobs.submit("k", {}, key=secret["key"], headers={"Idempotency-Key": secret["key"] + "2"}, expect=400)
    job = jobs.claim_one(queue)
    jobs.step(job, secret["step"], secret["result"])
    jobs.heartbeat(job, progress={"seen": secret["param"]})
    jobs.fail(job, secret["error"], secret["error"], retry_after_ms=0)
    job = jobs.claim_one(queue)
    wrong = {"mode": "sha256", "sha256": "0" * 64}
    jobs.complete(job, secret["result"], integrity=wrong, expect=422)
    jobs.complete(job, secret["result"])
    jobs.complete(job, secret["result"] + "2", expect=409)
    jobs.complete(job | {"lease_token": "0" * 32}, secret["result"], expect=409)
    submit(key=secret["key"])
    jobs.lookup(idempotency_key=secret["key"])
    jobs.release(secret["key"])
    submit(key=secret["key"])
    jobs.fail(jobs.claim_one(queue), "code", secret["error"], retryable=False)
    submit(key=secret["key"], on_failed="retry")
    submit(key=secret["key"] + "-left", queue=fresh("left"))


def test_28_nothing_of_the_callers_reaches_logs_metrics_audit_or_the_bundle(tmp_path: Path, queue: str) -> None:
    secret = secrets_of(fresh("run"))
    data = tmp_path / "data"
    with serving(data, store="memory", token=secret["token"], LOG_LEVEL="debug", TOKEN_ACTIVE=secret["token"]) as jobs:
        live_through(jobs, secret, queue)
        jobs.post(PATH, {"kind": "k"}, headers={"X-Semel-Token": secret["token"] + "2"}, expect=401)
        bundle = jobs.http.get("/v1/diagnose")
        assert bundle.status_code == 200, bundle.text
        seen = {name: content.decode(errors="replace") for name, content in unpacked(bundle).items()}
        for accept in ("application/json", "text/plain"):
            seen[f"metrics as {accept}"] = jobs.http.get("/metrics", headers={"Accept": accept}).text
        eventually(lambda: bool(jobs.audit("IDEMPOTENCY_HIT", status="completed")), "audit lines")
    seen["log"] = log_of(jobs.server)
    for path in (data / "logs").iterdir():
        seen[path.name] = path.read_text("utf-8")
    assert jobs.audit_lines()
    for where, text in seen.items():
        for what, value in secret.items():
            assert value not in text, f"{what} in {where}"
        if where in ("log", "audit.jsonl", "audit-important.jsonl"):
            assert not re.search(r"\b[0-9a-f]{64}\b", text), f"a whole hash in {where}"


def unpacked(bundle: httpx.Response) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(bundle.content)) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


# -- settings ---------------------------------------------------------------------------------------------------------


def test_30_other_names_of_settings_and_no_idempotency(tmp_path: Path, queue: str) -> None:
    env = {
        "SHERATAN_IDEMPOTENCY_ENABLED": "0",
        "SHERATAN_DLQ_ENABLED": "0",
        "SHERATAN_LEASE_TIMEOUT": "77",
        "SHERATAN_MAX_QUEUE_DEPTH": "9",
        "SEMEL_JOBS_MAX_QUEUE_DEPTH": "2",
    }
    with serving(tmp_path / "data", store="memory", env=env) as jobs:
        key = fresh("key")
        answers: list[Message] = [jobs.submit("k", {}, key=key, queue=queue) for _ in range(2)]
        for answer in answers:
            told = (answer["status"], answer["dedup"], answer["idempotency"], answer["expires_utc"])
            assert told == ("accepted", False, "disabled", None)
        assert len({answer["job_id"] for answer in answers}) == 2
        assert jobs.submit("k", {}, queue=queue, expect=429)["max"] == 2
        job = jobs.claim_one(queue)
        assert job["lease_ms"] == 77_000
        jobs.fail(job, retryable=False)
        assert jobs.get(job["job_id"])["reason"] == "permanent"
        assert (jobs.dead()["jobs"], jobs.metrics()["dlq_size"]) == ([], 0)
        assert jobs.metrics()["idempotency_store_size"] == 0
        jobs.submit("other", {}, key=key, queue=queue)
    log = log_of(jobs.server)
    assert "SHERATAN_MAX_QUEUE_DEPTH" in log
    assert "SEMEL_JOBS_MAX_QUEUE_DEPTH" in log
    assert "SHERATAN_LEASE_TIMEOUT" not in log


def test_30_a_value_that_does_not_parse_stops_the_start(tmp_path: Path) -> None:
    name = "SHERATAN_MAX_QUEUE_DEPTH"
    server = RunningServer(tmp_path / "data", env={name: "many", "SEMEL_STORE": "memory:"})
    server.launch({})
    assert server.wait_for_death(READY_SECONDS) not in (None, 0)
    told = server.output_tail()
    assert "Traceback" not in told
    assert name in told
