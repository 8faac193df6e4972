"""The doctor names real trouble in each surface of a running server, in one sentence, with what to do."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from semel.cli import doctor
from semel.cli.doctor import UPKEEP
from tests.cli.command import Semel
from tests.deltas.vectors import columns, delta, now_ms, stamp
from tests.harness.server import RunningServer, free_port
from tests.harness.together import eventually

JSON = {"Content-Type": "application/json"}
LIMITS = {
    "SEMEL_STREAMS_SUBSCRIPTIONS": "2",
    "SEMEL_JOBS_IDEMPOTENCY_STORE_MAX_ITEMS": "3",
    "SEMEL_LEDGER_MAX_ORGS": "2",
    "SEMEL_DELTAS_MAX_CLIENTS": "2",
}
Problem = tuple[str, str, str]


def problems(server: RunningServer, env: dict[str, str] | None = None) -> list[Problem]:
    """Surface, finding and advice of each problem."""
    run = Semel(server.url, env).here("doctor", "--data", str(server.data), "--json")
    checks: list[dict[str, Any]] = json.loads(run.out)["checks"]
    return [(one["name"], one["found"], one["advice"]) for one in checks if not one["ok"]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with RunningServer(tmp_path_factory.mktemp("troubles") / "data", env=LIMITS) as running:
        yield running


def test_a_webhook_whose_receiver_has_failed_for_long(server: RunningServer) -> None:
    semel = Semel(server.url)
    receiver = f"http://127.0.0.1:{free_port()}/"  # nobody listens there
    made = semel.here("streams", "subscriptions", "create", "mailer", "--webhook", receiver, "--pattern", "mail/*")
    assert made.code == 0, made.err
    httpx.put(f"{server.url}/v1/stream/mail/a", headers=JSON).raise_for_status()
    httpx.post(f"{server.url}/v1/stream/mail/a", json=1).raise_for_status()

    def told() -> list[Problem]:
        return [one for one in problems(server) if "the webhook of subscription mailer has failed" in one[1]]

    eventually(lambda: bool(told()), "the failing webhook is named", 60)
    [(surface, _, advice)] = told()
    assert surface == "streams"
    assert advice.startswith("Look at the receiver and its log")


def fill(server: RunningServer) -> None:
    """Use what the limits allow."""
    semel = Semel(server.url)
    for name in ("one", "two"):
        semel.here("streams", "subscriptions", "create", name, "--wake-stream", "wakes", "--pattern", f"{name}/*")
    with httpx.Client(base_url=server.url) as http:
        for number in range(3):
            job = {"kind": "k", "params": {}, "idempotency_key": f"key-{number}"}
            http.post("/v1/jobs", json=job).raise_for_status()
        for name in ("a", "b"):
            http.post("/ledger/v1/orgs", json={"name": name})
        for number, client in enumerate(("a", "b")):
            pushed = delta("INSERT", columns(title="t"), row=client, client=client, hlc=stamp(now_ms()) + number)
            body = {"clientId": client, "deltas": [pushed], "lastSeenHlc": "0"}
            http.post("/v1/sync/gw/push", json=body).raise_for_status()


def test_each_surface_near_its_limit(server: RunningServer) -> None:
    fill(server)
    found = {name: (told, advice) for name, told, advice in problems(server, LIMITS) if "of at most" in told}
    assert {name: told for name, (told, _) in found.items()} == {
        "streams": "2 of at most 2 subscriptions are used",
        "jobs": "3 of at most 3 keys are used",
        "ledger": "2 of at most 2 organizations are used",
        "deltas": "gateway gw: 2 of at most 2 clients are used",
    }
    for name, (_, advice) in found.items():
        assert f"raise SEMEL_{name.upper()}_" in advice
    assert not [told for _, told, _ in problems(server) if "of at most" in told], "the usual limits are far away"


def test_a_ledger_whose_last_block_is_lost(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with RunningServer(data) as server, httpx.Client(base_url=server.url) as http:
        org = http.post("/ledger/v1/orgs", json={"name": "o"}).json()["slug"]["slug"]
        vault = http.post(f"/ledger/v1/orgs/{org}/vaults", json={}).json()["vault"]["slug"]
        write = {"clientId": "c", "sequence": "1", "operations": [{"setEntity": {"key": "k", "value": "AA=="}}]}
        http.post(f"/ledger/v1/orgs/{org}/vaults/{vault}/writes", json=write).raise_for_status()
        assert problems(server) == []
    with closing(sqlite3.connect(data / "semel.db")) as database:
        database.execute("DELETE FROM ledger_block WHERE height = 1")
        database.commit()
    with RunningServer(data) as server:
        [(surface, told, advice)] = problems(server)
        assert (surface, told) == ("ledger", f"the log of vault {vault} of organization {org} is broken at its end")
        assert advice == "Run `semel check --surface ledger`, and restore the data from a backup."


def test_a_ledger_organization_that_is_closed(tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data") as server:
        org = httpx.post(f"{server.url}/ledger/v1/orgs", json={"name": "closed"}).json()["slug"]["slug"]
        assert Semel(server.url).here("ledger", "org", "set", str(org), "--status", "suspended").code == 0
        [(surface, told, advice)] = problems(server)
    assert told == f"organization {org} is SUSPENDED"
    assert (surface, "semel ledger org set" in advice) == ("ledger", True)


def test_jobs_that_no_worker_takes_and_a_queue_whose_leases_are_all_out(tmp_path: Path) -> None:
    clock = tmp_path / "clock"
    clock.write_text("-1200000")  # twenty minutes behind that of the doctor
    env = {"SEMEL_CLOCK_FILE": str(clock)}
    with RunningServer(tmp_path / "data", env=env) as server, httpx.Client(base_url=server.url) as http:
        assert Semel(server.url).here("jobs", "queue", "set", "slow", "1").code == 0
        for _ in range(2):
            http.post("/v1/jobs", json={"kind": "k", "params": {}, "queue": "slow"}).raise_for_status()
        http.post("/v1/jobs/claim", json={"worker_id": "w", "lease_sec": 86_400}).raise_for_status()
        found = {told: (surface, advice) for surface, told, advice in problems(server)}
    assert "a job is ready for 20 minutes, and 1 job leased" in found
    assert found["queue slow: all 1 leases are out, 1 wait"][0] == "jobs"


def test_a_clock_that_was_set_ahead(tmp_path: Path) -> None:
    clock = tmp_path / "clock"
    with RunningServer(tmp_path / "data", env={"SEMEL_CLOCK_FILE": str(clock)}) as server:
        clock.write_text("7200000")
        eventually(lambda: httpx.get(f"{server.url}/readyz").status_code == 503, "the jump is noticed")
        [(told, advice)] = [one[1:] for one in problems(server) if one[0] == "readiness"]
    assert told.startswith("the clock of this machine jumped ahead by 7")
    assert advice.startswith("Set the clock right")


def test_expired_rows_that_are_not_freed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    breaks = tmp_path / "breaks"
    env = {"SEMEL_DECISION_FAULT_FILE": str(breaks), "SEMEL_SWEEP_INTERVAL_MS": "100"}
    patient = {**UPKEEP, "semel_store_sweep_lag_seconds": UPKEEP["semel_store_sweep_lag_seconds"]._replace(bound=2.0)}
    monkeypatch.setattr(doctor, "UPKEEP", patient)
    with RunningServer(tmp_path / "data", env=env) as server:
        httpx.put(f"{server.url}/v1/stream/brief", headers=JSON | {"Stream-TTL": "1"}).raise_for_status()
        assert [one for one in problems(server) if one[0] == "upkeep"] == []
        breaks.touch()

        def told() -> list[Problem]:
            return [one for one in problems(server) if one[0] == "upkeep"]

        eventually(lambda: bool(told()), "the lag of the sweeper is named", 60)
        [(_, found, advice)] = told()
    assert found.startswith("expired rows are not freed for ")
    assert advice.startswith("Look at the log of the server")
