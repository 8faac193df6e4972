"""The three promises of a keyed submission, as its author wrote them down: one job, no other payload, the first result.

They are made at the author's own path, on every store, and seen where an operator sees them: in the audit file and
in the metrics.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.together import eventually
from tests.jobs.wire import RESULT, SUBMIT, Jobs, Message, fresh, serving

HIT = "IDEMPOTENCY_HIT"
COLLISION = "IDEMPOTENCY_KEY_COLLISION"
HELLO = {"msg": "hello", "n": 1}
OTHER = {"msg": "hello", "n": 2}
HELLO_HASH, OTHER_HASH = "fbfb837f", "0415c080"
"""How the SHA-256 of the two payloads begin, with the kind `echo_test`."""


@pytest.fixture(scope="module", params=["memory", "sqlite", "postgres"])
def jobs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    with serving(tmp_path_factory.mktemp("idempotency") / "data", store=request.param) as served:
        yield served


@pytest.fixture
def queue() -> str:
    return fresh("queue")


def changes(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """What the metrics of the author's list did meanwhile."""
    names = ("hits_1m", "in_progress_1m", "completed_1m", "collisions_1m")
    seen = {name: after[f"idempotent_{name}"] - before[f"idempotent_{name}"] for name in names}
    return seen | {"store_size": after["idempotency_store_size"] - before["idempotency_store_size"]}


def test_same_key_same_payload(jobs: Jobs, queue: str) -> None:
    """Ten submissions: one job in the queue, and nine times the same answer."""
    key, before = fresh("retried-key"), jobs.metrics()
    body: Message = {"key": key, "queue": queue, "client": {"node_id": "n1"}}
    first, *others = [jobs.submit("echo_test", HELLO, path=SUBMIT, **body) for _ in range(10)]
    assert (first["status"], first["dedup"], first["state"]) == ("accepted", False, "queued")
    assert {(one["status"], one["dedup"]) for one in others} == {("in_progress", True)}
    assert {(one["job_id"], one["request_id"]) for one in others} == {(first["job_id"], first["request_id"])}

    waiting = jobs.claim(queue, max=100)["jobs"]
    assert [(job["job_id"], job["kind"], job["params"]) for job in waiting] == [(first["job_id"], "echo_test", HELLO)]
    counted = {"hits_1m": 9, "in_progress_1m": 9, "completed_1m": 0, "collisions_1m": 0, "store_size": 1}
    assert changes(before, jobs.metrics()) == counted

    line = {"key_prefix": key[:8], "status": "in_progress", "job_id": first["job_id"]}
    line["request_id"] = first["request_id"]
    eventually(lambda: len(jobs.audit(HIT, **line)) == 9, "nine audit lines")
    assert key not in str(jobs.audit_lines())


@pytest.mark.parametrize(
    ("kind", "params", "new_hash"),
    [("echo_test", OTHER, OTHER_HASH), ("ping", {}, "2c2c2e9d")],
    ids=["other params", "other kind"],
)
def test_same_key_different_payload(jobs: Jobs, queue: str, kind: str, params: object, new_hash: str) -> None:
    """The second payload is refused and the first job stays as it is; the audit line is there with the answer."""
    key = fresh("collided-key")
    first = jobs.submit("echo_test", HELLO, key=key, queue=queue, path=SUBMIT)
    before, job = jobs.metrics(), jobs.get(first["job_id"])

    refused = jobs.submit(kind, params, key=key, queue=queue, path=SUBMIT, expect=409)
    lines = jobs.audit(COLLISION, job_id=first["job_id"])
    facts = {"key_prefix": key[:8], "old_hash_prefix": HELLO_HASH, "new_hash_prefix": new_hash}
    facts["job_id"] = first["job_id"]
    assert refused == {"ok": False, "error": COLLISION, "message": refused["message"]} | facts
    assert lines == [facts | {"remote_addr": lines[0]["remote_addr"]}]

    counted = {"hits_1m": 0, "in_progress_1m": 0, "completed_1m": 0, "collisions_1m": 1, "store_size": 0}
    assert changes(before, jobs.metrics()) == counted
    assert jobs.get(first["job_id"]) == job
    assert [one["job_id"] for one in jobs.claim(queue, max=100)["jobs"]] == [first["job_id"]]
    assert jobs.submit(kind, params, key=key, path=SUBMIT, expect=409)["job_id"] == first["job_id"]
    assert jobs.submit("echo_test", HELLO, key=key, path=SUBMIT)["status"] == "in_progress"


@pytest.mark.parametrize("is_claimed", [True, False], ids=["by a worker", "from outside"])
def test_completion_caching(jobs: Jobs, queue: str, is_claimed: bool) -> None:
    """After the end every submission is told the result that was reported, and nothing is queued again."""
    key, result = fresh("cached-key"), {"answer": 42, "text": "g\u00fcnstig"}
    first = jobs.submit("echo_test", HELLO, key=key, queue=queue, path=SUBMIT)
    token = jobs.claim_one(queue)["lease_token"] if is_claimed else None
    report = {"result": result} | ({"lease_token": token} if token else {})
    done = jobs.report(first["job_id"], path=RESULT, **report)
    assert (done["status"], done["dedup"]) == ("completed", False)
    before = jobs.metrics()

    again = [jobs.submit("echo_test", HELLO, key=key, queue=queue, path=SUBMIT) for _ in range(3)]
    for one in again:
        assert (one["status"], one["dedup"], one["job_id"]) == ("completed", True, first["job_id"])
        assert one["request_id"] == first["request_id"]
        assert one["cached_result"] == {"ok": True, "result": result}
        assert one["result_sha256"] == done["result_sha256"]
    assert again[0].raw == again[1].raw == again[2].raw
    assert jobs.claim(queue)["jobs"] == []
    counted = {"hits_1m": 3, "in_progress_1m": 0, "completed_1m": 3, "collisions_1m": 0, "store_size": 0}
    assert changes(before, jobs.metrics()) == counted
    eventually(lambda: len(jobs.audit(HIT, job_id=first["job_id"], status="completed")) == 3, "three audit lines")
