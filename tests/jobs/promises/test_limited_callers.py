"""Callers with limits: a worker of other queues, one that no longer holds a job, an admin of some queues, a namesake.

Credentials are judged before any store is asked, so one store will do.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.harness.tokens import Issuer, token_file
from tests.jobs.wire import PATH, Jobs, fresh, serving

ROLES = {"alice": ["read", "write"], "worker": ["work"], "shop": ["work"], "keeper": ["admin"], "admin": ["admin"]}
SCOPES = {"shop": ["jobs:shop"], "keeper": ["jobs:shop*"]}


def token_of(name: str) -> str:
    return f"the token of {name}"


class Cast:
    """One client for each token, and what others are made with."""

    def __init__(self, jobs: Jobs, stack: ExitStack, issuer: Issuer) -> None:
        self.jobs = jobs
        self.issuer = issuer
        self.alice, self.worker, self.shop, self.keeper, self.admin = [
            stack.enter_context(jobs.with_token(token_of(name))) for name in ROLES
        ]

    def bearer(self, subject: str, *roles: str) -> Jobs:
        """The holder of a JWT; the caller closes it."""
        claims = {"sub": subject, "role": list(roles), "exp": int(time.time()) + 600}
        return self.jobs.with_token(self.issuer.signed(claims))


@pytest.fixture(scope="module")
def cast(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cast]:
    folder = tmp_path_factory.mktemp("limited")
    issuer = Issuer(folder)
    entries = {name: (token_of(name), roles, SCOPES.get(name, [])) for name, roles in ROLES.items()}
    keys = {"SEMEL_TOKENS": str(token_file(folder, entries)), "SEMEL_JWT_KEYS": str(issuer.keys)}
    with serving(folder / "data", store="memory", env=keys) as jobs, ExitStack() as stack:
        yield Cast(jobs, stack, issuer)


@pytest.mark.parametrize("ok", [True, False])
def test_an_outside_end_is_not_taken_from_a_worker_of_other_queues(cast: Cast, queue: str, ok: bool) -> None:
    job_id = cast.alice.submit("k", {}, queue=queue)["job_id"]
    before = cast.alice.get(job_id)
    end = {"result": "forged"} if ok else {"error": {"code": "forged", "message": "it is not"}}
    refused = cast.shop.report(job_id, ok=ok, **end, expect=404)
    unknown = cast.shop.report("job_" + "0" * 32, ok=ok, **end, expect=404)
    assert dict(refused) == dict(unknown)
    assert cast.alice.get(job_id) == before
    mine = cast.alice.submit("k", {}, queue="shop")["job_id"]
    assert cast.shop.report(mine, ok=ok, **end)["ok"] is True


def test_a_worker_that_holds_a_job_no_longer_does_not_see_it(cast: Cast, queue: str) -> None:
    for end in ("fail", "defer", "complete"):
        cast.alice.submit("k", {"secret": 1}, queue=queue)
        job = cast.worker.claim_one(queue)
        assert cast.worker.get(job["job_id"])["params"] == {"secret": 1}
        if end == "fail":
            cast.worker.fail(job, retry_after_ms=60_000)
        elif end == "defer":
            cast.worker.defer(job, 60_000)
        else:
            cast.worker.complete(job, 1)
        assert cast.worker.get(job["job_id"], expect=404)["error"] == "not_found", end
        assert cast.worker.result(job["job_id"], expect=404)["error"] == "not_found", end
        assert cast.alice.get(job["job_id"])["params"] == {"secret": 1}


def test_an_admin_of_some_queues_gets_no_diagnosis(cast: Cast) -> None:
    assert cast.keeper.http.get("/v1/diagnose").status_code == 403
    assert cast.admin.http.get("/v1/diagnose").status_code == 200


def test_a_jwt_for_the_name_of_a_token_is_somebody_else(cast: Cast, queue: str) -> None:
    key = fresh("key")
    first = cast.alice.submit("k", {}, key=key, queue=queue)
    with cast.bearer("alice", "read", "write") as namesake:
        assert namesake.get(first["job_id"], expect=404)["error"] == "not_found"
        assert namesake.cancel(first["job_id"], expect=404)["error"] == "not_found"
        assert namesake.lookup(idempotency_key=key, expect=404)["error"] == "not_found"
        assert namesake.page(queue=queue)["jobs"] == []
        second = namesake.submit("k", {"n": 2}, key=key, queue=queue)
        assert (second["dedup"], second["status"]) == (False, "accepted")
        assert namesake.get(second["job_id"])["queue"] == queue
    assert cast.alice.get(second["job_id"], expect=404)["error"] == "not_found"
    with cast.bearer("worker", "work") as namesake:
        held = cast.worker.claim_one(queue)
        assert namesake.get(held["job_id"], expect=404)["error"] == "not_found"


@pytest.mark.parametrize("path", [f"{PATH}/queues", f"{PATH}/schedules", f"{PATH}/dead"])
def test_an_admin_of_some_queues_orders_nothing_for_all(cast: Cast, path: str) -> None:
    assert cast.keeper.call("GET", path, expect=403)["error"] == "forbidden"
    assert cast.admin.call("GET", path)["ok"] is True
