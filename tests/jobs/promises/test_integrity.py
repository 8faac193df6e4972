"""Checksums and signatures of results: what is wrong is neither stored nor served, and the job is not run again."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import rfc8785

from tests.jobs.wire import ABSENT, Jobs, Message, fresh, serving

FAILED = "RESULT_INTEGRITY_FAIL"
KEY = "integrity-key"
VECTORS = [
    (
        {"job_id": "job_1", "ok": True, "result": {"note": "hello", "value": 42}},
        "e1c385f76353565a1e3f961ca50ec256b590b88c0e7e5c6af0b9299e29f13fb9",
        "4fd5c52df26d4c184bbc54f9f7138bb32f0c1e568f8b509707a5f4617a244d16",
    ),
    (
        {"job_id": "job_1", "ok": False, "error": {"code": "boom", "message": "no"}},
        "d3aef923358f2e3167b463cc9ad0c32c67d540f65b30205ca30616b57b10949e",
        "796c25c52ad4bdfb44b7913ee43dbf7756d1f596e97fb380b167c561e4397323",
    ),
]


def signed_bytes(job_id: str, **outcome: Any) -> bytes:
    """What is hashed and signed, by a canonicalizer that is not ours."""
    signed: Message = {"job_id": job_id, "ok": "result" in outcome} | outcome
    return rfc8785.dumps(signed)


def sha_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def signature_of(content: bytes, key: str = KEY) -> str:
    return hmac.new(key.encode(), content, hashlib.sha256).hexdigest()


def checksum(content: bytes) -> Message:
    return {"mode": "sha256", "sha256": sha_of(content)}


def signature(content: bytes, key: str = KEY) -> Message:
    return {"mode": "hmac", "sha256": sha_of(content), "sig": signature_of(content, key)}


def held(jobs: Jobs, queue: str, key: str = "") -> Message:
    jobs.submit("k", {}, queue=queue, key=key or ABSENT)
    return jobs.claim_one(queue)


@pytest.mark.parametrize(("outcome", "sha", "mac"), VECTORS, ids=["result", "error"])
def test_26_the_vectors(outcome: Mapping[str, Any], sha: str, mac: str) -> None:
    """These tests sign what the vectors sign; the server is held against the tests."""
    rest = {name: value for name, value in outcome.items() if name not in ("job_id", "ok")}
    content = signed_bytes("job_1", **rest)
    assert (sha_of(content), signature_of(content)) == (sha, mac)


def outcomes(jobs: Jobs) -> dict[str, float]:
    names = [f'semel_jobs_integrity_total{{outcome="{one}"}}' for one in ("verified", "missing", "fail")]
    seen = jobs.prometheus()
    return {name: seen.get(name, 0) for name in names}


def test_26_a_right_checksum_is_taken_and_a_wrong_one_is_not(jobs: Jobs, queue: str) -> None:
    key, result = fresh("key"), {"value": 42, "note": "hello \u20ac", "list": [1.5, None, True]}
    job = held(jobs, queue, key)
    before, counted = jobs.get(job["job_id"]), outcomes(jobs)
    right = checksum(signed_bytes(job["job_id"], result=result))
    digits = right["sha256"]
    wrong = right | {"sha256": digits[:-1] + ("0" if digits[-1] != "0" else "1")}
    refused = jobs.complete(job, result, integrity=wrong, expect=422)
    assert refused["error"] == "result_integrity_fail"
    [line] = jobs.audited_first(FAILED, job_id=job["job_id"])
    assert {"mode": "sha256", "reason": "sha_mismatch"}.items() <= line.items()
    assert "remote_addr" in line
    assert jobs.complete(job, {"value": 43}, integrity=right, expect=422)["error"] == "result_integrity_fail"
    assert jobs.get(job["job_id"]) == before
    done = jobs.complete(job, result, integrity=right)
    assert done["result_sha256"] == right["sha256"]
    whole = jobs.result(job["job_id"])
    assert whole["integrity"]["sha256"] == right["sha256"]
    assert sha_of(signed_bytes(whole["job_id"], result=whole["result"])) == right["sha256"]
    after = outcomes(jobs)
    assert [after[name] - counted[name] for name in counted] == [1, 0, 2]


def test_26_a_checksum_of_an_error_is_checked_too(jobs: Jobs, queue: str) -> None:
    job, error = held(jobs, queue), {"code": "boom", "message": "no", "details": {"n": 1}}
    wrong = checksum(signed_bytes(job["job_id"], error=error | {"code": "bang"}))
    body: Message = {"error": error, "retryable": False}
    assert jobs.fail(job, **body, integrity=wrong, expect=422)["error"] == "result_integrity_fail"
    assert jobs.get(job["job_id"])["state"] == "leased"
    jobs.fail(job, **body, integrity=checksum(signed_bytes(job["job_id"], error=error)))
    whole = jobs.result(job["job_id"])
    assert (whole["ok"], whole["error"]) == (False, error)
    assert whole["integrity"]["sha256"] == sha_of(signed_bytes(job["job_id"], error=error))


def test_26_a_missing_checksum_is_counted_and_computed(jobs: Jobs, queue: str) -> None:
    counted, job = outcomes(jobs), held(jobs, queue)
    done = jobs.complete(job, {"n": 1})
    assert done["result_sha256"] == sha_of(signed_bytes(job["job_id"], result={"n": 1}))
    after = outcomes(jobs)
    assert [after[name] - counted[name] for name in counted] == [0, 1, 0]


@pytest.mark.parametrize("result", [{"f": 1.0, "e": 1e20}, {"\U0001f600": 1, "\ufb33": 2}], ids=["floats", "names"])
def test_26_a_checksum_over_pythons_own_json_is_taken_too(jobs: Jobs, queue: str, result: Any) -> None:
    job = held(jobs, queue)
    outcome = {"job_id": job["job_id"], "ok": True, "result": result}
    text = json.dumps(outcome, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert text.encode() != signed_bytes(job["job_id"], result=result)
    done = jobs.complete(job, result, integrity=checksum(text.encode()))
    assert done["result_sha256"] == sha_of(signed_bytes(job["job_id"], result=result))


@pytest.fixture(scope="module")
def signing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    """A server that takes signed results only; the store cannot matter."""
    data = tmp_path_factory.mktemp("signing") / "data"
    with serving(data, store="memory", JOBS_RESULT_INTEGRITY_MODE="hmac", JOBS_RESULT_HMAC_KEY=KEY) as served:
        yield served


def test_26_signatures_are_checked_and_demanded(signing: Jobs, queue: str) -> None:
    job = held(signing, queue)
    content = signed_bytes(job["job_id"], result={"n": 1})
    assert signing.complete(job, {"n": 1}, expect=400)["error"] == "integrity_missing"
    signing.audited(FAILED, job_id=job["job_id"], reason="missing_integrity")
    unsigned = signing.complete(job, {"n": 1}, integrity=checksum(content), expect=None)
    assert (unsigned.http, unsigned["error"]) in ((400, "integrity_missing"), (422, "result_integrity_fail"))
    for wrong in (signature(content, "other"), signature(content) | {"sig": "0" * 64}):
        assert signing.complete(job, {"n": 1}, integrity=wrong, expect=422)["error"] == "result_integrity_fail"
    assert signing.audited_first(FAILED, job_id=job["job_id"], reason="sig_mismatch")
    assert signing.complete(job, {"n": 2}, integrity=signature(content), expect=422)["error"] == "result_integrity_fail"
    assert signing.get(job["job_id"])["state"] == "leased"
    signing.complete(job, {"n": 1}, integrity=signature(content))
    assert signing.complete(job, {"n": 1}, integrity=signature(content))["dedup"] is True
    assert signing.metrics()["integrity_fail_1m"] >= 3
    assert KEY not in str(signing.audit_lines())


def test_26_signed_errors_and_the_mesh(signing: Jobs, queue: str) -> None:
    job, error = held(signing, queue), {"code": "boom", "message": "no"}
    signed = signature(signed_bytes(job["job_id"], error=error))
    body: Message = {"ok": False, "error": error, "retryable": False, "lease_token": job["lease_token"]}
    assert signing.report(job["job_id"], **body, expect=400)["error"] == "integrity_missing"
    assert signing.report(job["job_id"], **body, integrity=signed)["status"] == "failed"


def test_26_a_damaged_result_is_not_served_and_the_job_is_not_run_again(tmp_path: Path, queue: str) -> None:
    """One letter changes in the file while the server is down."""
    small, large, data = fresh("key"), fresh("key"), tmp_path / "data"
    with serving(data, store="sqlite") as jobs:
        for key, size in ((small, 10), (large, 20_000)):
            job = held(jobs, queue, key)
            jobs.complete(job, {"text": f"planted-{key}-" + "x" * size})
    [database] = [path for path in data.iterdir() if path.read_bytes().startswith(b"SQLite format 3")]
    content = database.read_bytes()
    assert b"planted-" in content
    database.write_bytes(content.replace(b"planted-", b"blanted-"))
    with serving(data, store="sqlite", clean=False) as jobs:
        for key in (small, large):
            hit = jobs.submit("k", {}, key=key)
            assert (hit["status"], hit["dedup"]) == ("completed", True)
            assert "cached_result" not in hit
            assert hit["cached_result_omitted"] == ("integrity" if key == small else "too_large")
            assert jobs.result(hit["job_id"], expect=500)["error"] == "result_integrity_fail"
            assert b"lanted-" not in jobs.get(hit["job_id"]).raw
            assert jobs.audited_first(FAILED, job_id=hit["job_id"])
            assert jobs.get(hit["job_id"])["state"] == "completed"
        assert jobs.claim(queue)["jobs"] == []
        assert jobs.metrics()["integrity_fail_1m"] >= 2
