"""Jobs after a restore: a worker of the lost time is fenced, and submissions of before are known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.epoch.restored import BackupPremises, Premises, Writer

Body = dict[str, Any]


def submit(writer: Writer, order: int = 7) -> Body:
    body = {"kind": "bill", "params": {"order": order}, "idempotency_key": f"order-{order}"}
    answer: Body = writer.http.post("/v1/jobs", json=body).json()
    return answer


def claim(writer: Writer, worker: str) -> Body:
    """Claim the one job, and confirm that it was taken."""
    [job] = writer.http.post("/v1/jobs/claim", json={"worker_id": worker, "wait_ms": 2_000}).json()["jobs"]
    assert report(writer, job, "heartbeat", {}) == 200
    claimed: Body = job
    return claimed


def report(writer: Writer, job: Body, verb: str, body: Body) -> int:
    path = f"/v1/jobs/{job['job_id']}/{verb}"
    return writer.http.post(path, json={"lease_token": job["lease_token"], **body}).status_code


@pytest.mark.parametrize(
    ("make", "kind"),
    [(Premises, "sqlite"), (BackupPremises, "sqlite to sqlite"), (BackupPremises, "sqlite to postgres")],
    ids=["raise", "restore", "restore into postgres"],
)
def test_c_epoch_a_worker_of_the_lost_time_cannot_report_for_the_new_holder(
    tmp_path: Path, make: Callable[[str, Path], Premises], kind: str
) -> None:
    premises = make(kind, tmp_path)
    with premises.serving() as writer:
        submit(writer, 6)
        assert report(writer, claim(writer, "one"), "complete", {"result": "done"}) == 200  # makes the store's secret
        first = submit(writer)
    premises.back_up()
    with premises.serving() as writer:
        lost = claim(writer, "one")
    premises.restore()
    premises.raise_epoch()
    with premises.serving() as writer:
        again = submit(writer)
        assert (again["job_id"], again["request_id"], again["dedup"]) == (first["job_id"], first["request_id"], True)
        held = claim(writer, "two")
        assert held["job_id"] == lost["job_id"] == first["job_id"]
        assert held["attempt"] == lost["attempt"], "by their numbers alone both leases are the same"
        assert held["lease_token"] != lost["lease_token"]
        assert report(writer, lost, "heartbeat", {}) == 409
        assert report(writer, lost, "complete", {"result": "of the lost time"}) == 409
        assert report(writer, held, "complete", {"result": "new"}) == 200
        assert report(writer, held, "complete", {"result": "new"}) == 200, "a retry gets the first answer"


def test_c_epoch_a_job_that_was_claimed_before_the_backup_runs_again_after_its_lease(tmp_path: Path) -> None:
    premises = BackupPremises("sqlite to sqlite", tmp_path)
    with premises.serving() as writer:
        submit(writer)
        held = claim(writer, "one")
    premises.back_up()
    premises.restore()
    with premises.serving() as writer:
        assert report(writer, held, "complete", {"result": "late"}) == 409
        state = writer.http.get(f"/v1/jobs/{held['job_id']}").json()
        assert state["status"] == "in_progress"
