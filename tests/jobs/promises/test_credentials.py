"""Who may do what with which job: roles, principals, queues, token headers, rotation. The store cannot matter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.harness.together import PATIENCE_SECONDS, eventually
from tests.harness.tokens import token_file
from tests.jobs.wire import CLAIM, PATH, SUBMIT, Answer, Jobs, fresh, serving

ROLES = {
    "alice": ["read", "write"],
    "bob": ["read", "write"],
    "worker": ["work"],
    "admin": ["admin"],
    "reader": ["read"],
    "scoped": ["read", "write", "work"],
    "greedy": ["read", "write"],
}
SCOPES = {"scoped": ["jobs:shop-*"]}
AUTH_FAILURE = "AUTH_FAILURE"
OLD, NEW = "the-old-secret-token", "the-new-secret-token"
KEYS_EACH = 12
"""Far more than any principal uses here, but for the greedy one."""


def token_of(name: str) -> str:
    return f"the token of {name}"


class Cast:
    """One client for each token of the file."""

    def __init__(self, jobs: Jobs, stack: ExitStack) -> None:
        self.nobody = jobs
        self.alice, self.bob, self.worker, self.admin, self.reader, self.scoped, self.greedy = [
            stack.enter_context(jobs.with_token(token_of(name))) for name in ROLES
        ]


@pytest.fixture(scope="module")
def cast(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cast]:
    folder = tmp_path_factory.mktemp("credentials")
    entries = {name: (token_of(name), roles, SCOPES.get(name, [])) for name, roles in ROLES.items()}
    tokens = token_file(folder, entries)
    caps = {"SEMEL_JOBS_IDEMPOTENCY_STORE_MAX_ITEMS_PER_PRINCIPAL": str(KEYS_EACH)}
    with serving(folder / "data", store="memory", env=caps, TOKENS=tokens) as jobs, ExitStack() as stack:
        yield Cast(jobs, stack)


# -- principals -------------------------------------------------------------------------------------------------------


def test_4_one_key_of_two_principals_is_two_jobs(cast: Cast, queue: str) -> None:
    key = fresh("key")
    first, second = (
        cast.alice.submit("k", {}, key=key, queue=queue),
        cast.bob.submit("k", {"n": 1}, key=key, queue=queue),
    )
    assert (first["dedup"], second["dedup"]) == (False, False)
    assert first["job_id"] != second["job_id"]
    assert cast.alice.submit("k", {}, key=key)["job_id"] == first["job_id"]
    assert cast.bob.submit("k", {"n": 1}, key=key)["job_id"] == second["job_id"]


def test_4_a_principal_sees_its_own_jobs_only(cast: Cast, queue: str) -> None:
    key = fresh("key")
    first = cast.alice.submit("k", {}, key=key, queue=queue)
    for refused in (
        cast.bob.get(first["job_id"], expect=404),
        cast.bob.result(first["job_id"], expect=404),
        cast.bob.cancel(first["job_id"], expect=404),
        cast.bob.lookup(idempotency_key=key, expect=404),
        cast.bob.lookup(request_id=first["request_id"], expect=404),
    ):
        assert refused["error"] == "not_found"
    assert cast.bob.page(queue=queue)["jobs"] == []
    assert [job["job_id"] for job in cast.alice.page(queue=queue)["jobs"]] == [first["job_id"]]
    assert [job["job_id"] for job in cast.admin.page(queue=queue)["jobs"]] == [first["job_id"]]
    assert cast.alice.get(first["job_id"])["state"] == "queued"


def test_workers_report_on_the_jobs_of_everybody(cast: Cast, queue: str) -> None:
    key = fresh("key")
    cast.alice.submit("k", {"n": 1}, key=key, queue=queue)
    job = cast.worker.claim_one(queue)
    assert job["params"] == {"n": 1}
    assert cast.worker.heartbeat(job)["cancel_requested"] is False
    assert cast.worker.step(job, "s", 1)["result"] == 1
    cast.worker.complete(job, "done")
    assert cast.alice.submit("k", {"n": 1}, key=key)["cached_result"]["result"] == "done"


def test_workers_see_the_jobs_they_hold_and_no_others(cast: Cast, queue: str) -> None:
    for _ in range(2):
        cast.alice.submit("k", {"n": 1}, queue=queue)
    held, other = cast.worker.claim_one(queue), cast.alice.page(queue=queue, state="queued")["jobs"][0]
    assert cast.worker.get(held["job_id"])["params"] == {"n": 1}
    assert cast.worker.get(other["job_id"], expect=404)["error"] == "not_found"
    cast.worker.complete(held, "done")
    assert cast.worker.result(held["job_id"], expect=None).http in (403, 404)


def test_a_key_is_released_by_the_name_of_its_principal(cast: Cast, queue: str) -> None:
    key = fresh("key")
    job_id = cast.alice.submit("k", {}, key=key, queue=queue)["job_id"]
    cast.alice.cancel(job_id)
    assert cast.admin.release(key, principal="bob", expect=404)["error"] == "not_found"
    cast.admin.release(key, principal="alice")
    assert cast.alice.submit("k", {}, key=key, queue=queue)["status"] == "accepted"


def test_13_no_principal_takes_the_records_of_another(cast: Cast, queue: str) -> None:
    for _ in range(KEYS_EACH):
        cast.greedy.submit("k", {}, key=fresh("key"), queue=queue)
    refused = cast.greedy.submit("k", {}, key=fresh("key"), queue=queue, expect=429)
    assert refused["error"] == "idempotency_store_full"
    assert cast.greedy.submit("k", {}, queue=queue)["status"] == "accepted"
    assert cast.bob.submit("k", {}, key=fresh("key"), queue=queue)["status"] == "accepted"


# -- roles ------------------------------------------------------------------------------------------------------------


def test_roles_are_needed(cast: Cast, queue: str) -> None:
    job_id = cast.alice.submit("k", {}, queue=queue)["job_id"]
    job = {"job_id": job_id, "lease_token": "0" * 32}
    calls: list[Callable[[], Answer]] = [
        lambda: cast.worker.submit("k", {}, expect=403),
        lambda: cast.worker.submit("k", {}, path=SUBMIT, expect=403),
        lambda: cast.reader.submit("k", {}, expect=403),
        lambda: cast.reader.cancel(job_id, expect=403),
        lambda: cast.alice.claim(queue, expect=403),
        lambda: cast.alice.claim(queue, path=CLAIM, expect=403),
        lambda: cast.alice.complete(job, 1, expect=403),
        lambda: cast.alice.fail(job, expect=403),
        lambda: cast.alice.defer(job, expect=403),
        lambda: cast.alice.heartbeat(job, expect=403),
        lambda: cast.alice.step(job, "s", expect=403),
        lambda: cast.alice.report(job_id, result=1, expect=403),
        lambda: cast.alice.dead(expect=403),
        lambda: cast.alice.requeue(job_id, expect=403),
        lambda: cast.alice.release("k", expect=403),
        lambda: cast.worker.set_queue(queue, 1, expect=403),
        lambda: cast.alice.set_schedule("s", cron="0 0 1 1 *", kind="k", expect=403),
        lambda: cast.alice.call("GET", f"{PATH}/queues/{queue}", expect=403),
        lambda: cast.alice.schedule("s", expect=403),
    ]
    for call in calls:
        assert call()["error"] == "forbidden"
    assert cast.alice.get(job_id)["state"] == "queued"
    assert cast.alice.get(job_id)["epoch"] == 0


def test_a_scoped_token_keeps_to_its_queues(cast: Cast) -> None:
    inside, outside = fresh("shop-"), fresh("other")
    assert cast.scoped.submit("k", {}, queue=outside, expect=403)["error"] == "forbidden"
    own = cast.scoped.submit("k", {}, queue=inside)
    cast.alice.submit("k", {}, queue=outside)
    assert cast.scoped.claim(outside, expect=None).http in (200, 403)
    taken = cast.scoped.claim(max=100)["jobs"]
    assert {job["queue"] for job in taken} <= {inside}
    assert own["job_id"] in [job["job_id"] for job in taken]
    assert len(cast.worker.claim(outside, max=10)["jobs"]) == 1


# -- the token itself -------------------------------------------------------------------------------------------------


def test_without_or_with_a_wrong_token_there_is_nothing(cast: Cast) -> None:
    jobs = cast.nobody
    assert jobs.post(PATH, {"kind": "k"}, expect=401)["error"] == "unauthorized"
    assert jobs.post(SUBMIT, {"kind": "k"}, expect=401)["error"] == "unauthorized"
    wrong = {"Authorization": "Bearer wrong"}
    assert jobs.post(PATH, {"kind": "k"}, headers=wrong, expect=401)["error"] == "unauthorized"
    assert jobs.post(SUBMIT, {"kind": "k"}, headers=wrong, expect=403)["error"] in ("unauthorized", "forbidden")
    wanted = {(reason, path) for reason in ("missing_token", "bad_token") for path in (PATH, SUBMIT)}
    eventually(
        lambda: wanted <= {(line["reason"], line["path"]) for line in jobs.audit(AUTH_FAILURE)}, "four audit lines"
    )
    assert jobs.http.get("/metrics").status_code == 401
    assert cast.worker.metrics()["auth_fail_1m"] >= 4
    for path in ("/health", "/livez"):
        health = jobs.http.get(path)
        assert (health.status_code, set(health.json())) == (200, {"status", "version"})


def test_the_token_may_come_in_three_headers_which_must_agree(cast: Cast, queue: str) -> None:
    good = token_of("alice")
    for headers in (
        {"Authorization": f"Bearer {good}"},
        {"X-Semel-Token": good},
        {"X-Sheratan-Token": good},
        {"X-Semel-Token": good, "X-Sheratan-Token": good, "Authorization": f"Bearer {good}"},
    ):
        assert cast.nobody.submit("k", {}, queue=queue, headers=headers)["status"] == "accepted"
    for headers in (
        {"X-Semel-Token": good, "X-Sheratan-Token": token_of("bob")},
        {"X-Semel-Token": good, "Authorization": "Bearer wrong"},
        {"X-Sheratan-Token": "wrong"},
    ):
        assert cast.nobody.submit("k", {}, queue=queue, headers=headers, expect=401)["error"] == "unauthorized"
    assert cast.nobody.http.get("/metrics", headers={"X-Semel-Token": good}).status_code == 200


def test_the_request_line_is_judged_before_the_token_and_the_token_before_the_body(cast: Cast) -> None:
    jobs = cast.nobody
    assert jobs.call("GET", SUBMIT, expect=405)["error"] == "method_not_allowed"
    assert jobs.post(PATH, content=b"{", headers={"Content-Type": "text/plain"}, expect=415)["ok"] is False
    assert jobs.post(PATH, content=b" " * (2 * 1024 * 1024 + 1), expect=413)["error"] == "too_large"
    assert jobs.post(PATH, content=b"{", expect=401)["error"] == "unauthorized"
    assert cast.worker.post(PATH, content=b"{", expect=403)["error"] == "forbidden"
    assert cast.alice.post(PATH, content=b"{", expect=400)["error"] == "invalid_request"


# -- rotation ---------------------------------------------------------------------------------------------------------


def test_29_both_tokens_of_a_rotation_are_one_principal_until_its_end(tmp_path: Path) -> None:
    """A server that took longer to start than the rotation lasts shows nothing, and is tried again with more time."""
    assert any(rotate(tmp_path / f"{seconds}", timedelta(seconds=seconds)) for seconds in (2, 6, 20, 80))


def rotate(data: Path, time_left: timedelta) -> bool:
    until = datetime.now(UTC) + time_left
    env = {"SEMEL_TOKEN_ACTIVE": OLD, "SEMEL_TOKEN_NEXT": NEW}
    env["SEMEL_TOKEN_ROTATION_UNTIL"] = until.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    with serving(data, store="memory", env=env) as nobody, ExitStack() as stack:
        first, second = [stack.enter_context(nobody.with_token(token)) for token in (OLD, NEW)]
        made = first.submit("k", {}, key="key", expect=None)
        if made.http == 401:
            return False
        while_both_are_good(nobody, second, made)
        eventually(
            lambda: first.submit("k", {}, key="key", expect=None).http == 401,
            "the old token is no longer taken",
            time_left.total_seconds() + PATIENCE_SECONDS,
        )
        assert datetime.now(UTC) >= until
        when_the_old_one_is_not(nobody, first, second, made)
        written = str(nobody.audit_lines()) + nobody.nodes[0].output_tail()
        assert OLD not in written
        assert NEW not in written
    return True


def while_both_are_good(nobody: Jobs, second: Jobs, made: Answer) -> None:
    again = second.submit("k", {}, key="key")
    assert (again["dedup"], again["job_id"]) == (True, made["job_id"])
    assert second.get(made["job_id"])["kind"] == "k"
    nobody.post(PATH, {"kind": "k"}, headers={"Authorization": "Bearer neither"}, expect=401)
    metrics = second.metrics()
    assert metrics["auth_success_active_1m"] >= 1
    assert metrics["auth_success_next_1m"] >= 2
    assert metrics["auth_fail_1m"] == 1


def when_the_old_one_is_not(nobody: Jobs, first: Jobs, second: Jobs, made: Answer) -> None:
    assert OLD not in first.submit("k", {}, key="key", path=SUBMIT, expect=403)["message"]
    assert second.submit("k", {}, key="key")["job_id"] == made["job_id"]
    second.complete(second.claim_one(), 1)
    wanted = {"TOKEN_ACCEPTED_NEXT", "TOKEN_RETIRED"}
    eventually(lambda: wanted <= {line["event"] for line in nobody.audit_lines()}, "the rotation's audit lines")
    eventually(lambda: bool(nobody.audit(AUTH_FAILURE, reason="retired_token")), "an audit line")
    assert second.metrics()["auth_fail_old_token_1m"] >= 2
