"""A caller is told of the writes that it may read; any other does not exist for it, whatever it asks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.tokens import token_file
from tests.server.writes.write_site import STORES, WriteSite, new_key, write_site

KEY = new_key()
CALLERS: dict[str, tuple[list[str], list[str]]] = {
    "boss": (["admin"], []),
    "ada": (["read", "write"], ["*:ada*"]),
    "eve": (["read", "write"], ["*:eve*"]),
    "writer": (["write"], []),
    "worker": (["work"], []),
    "reader": (["read"], []),
}
"""Roles and scopes by name."""
SURFACES = ("streams", "events", "jobs", "ledger", "deltas")


class Tenants:
    """A server with writes of one tenant, and its callers."""

    def __init__(self, sites: dict[str, WriteSite]) -> None:
        self.sites = sites
        ada, boss = sites["ada"], sites["boss"]
        ada.append("ada/s", KEY)
        ada.produce("ada/s", "ada-producer", 0)
        event = ada.submit_event("ada-event", "ada-p")
        job = ada.submit_job("ada-job", "ada-q")
        self.place = boss.make_vault()
        made = boss.transact(self.place, KEY, "boss")
        delta, hlc = ada.push("ada-g", "ada")
        org = self.place.partition("/")[0]
        self.identities: dict[str, list[tuple[str, str | None]]] = {
            "streams": [("ada-producer", None), ("ada/s", None), (KEY, "ada/s"), ("ada-producer", "ada/s")],
            "events": [("ada-event", None), (str(event["committed_id"]), None), ("ada-event", "ada-p")],
            "jobs": [("ada-job", None), ("ada-job", "ada"), (job["job_id"], None), (job["request_id"], None)],
            "ledger": [(made["txId"]["id"], None), (KEY, self.place), ("boss/1", None), ("1", org)],
            "deltas": [(delta, None), (f"{delta}@{hlc}", None), (delta, "ada-g")],
        }

    def seen(self, caller: str, surface: str) -> list[int]:
        """How many writes a caller is told of, for each identity."""
        site = self.sites[caller]
        return [len(site.find(*identity)["writes"]) for identity in self.identities[surface]]


@pytest.fixture(scope="module", params=STORES)
def tenants(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenants]:
    folder = tmp_path_factory.mktemp("tenants")
    tokens = token_file(folder, {name: (f"the-token-of-{name}", *rest) for name, rest in CALLERS.items()})
    with write_site(folder, request.param, SEMEL_TOKENS=str(tokens)) as made:
        sites = {name: WriteSite(made.server, f"the-token-of-{name}") for name in CALLERS}
        yield Tenants(sites)
        for site in sites.values():
            site.client.close()


EXPECTED = {
    "boss": dict.fromkeys(SURFACES, True),
    "ada": {"streams": True, "events": True, "jobs": True, "ledger": False, "deltas": True},
    "eve": dict.fromkeys(SURFACES, False),
    "writer": dict.fromkeys(SURFACES, False),
    "worker": dict.fromkeys(SURFACES, False),
    "reader": {"streams": True, "events": True, "jobs": False, "ledger": True, "deltas": True},
}


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("surface", SURFACES)
def test_a_write_is_told_to_whom_may_read_it_and_to_no_one_else(tenants: Tenants, caller: str, surface: str) -> None:
    may = EXPECTED[caller][surface]
    assert tenants.seen(caller, surface) == [int(may)] * len(tenants.identities[surface])


def test_what_a_caller_may_not_read_has_the_answer_of_an_unknown_identity(tenants: Tenants) -> None:
    site = tenants.sites["eve"]
    unknown = site.find("never-used")
    for identities in tenants.identities.values():
        for identity, place in identities:
            facts = site.find(identity, place)
            assert facts | {"id": None, "in": None} == unknown | {"id": None, "in": None}


def test_a_caller_without_a_credential_is_refused(tenants: Tenants) -> None:
    with WriteSite(tenants.sites["ada"].server) as site:
        for answer in (
            site.client.get(f"/v1/writes/{KEY}"),
            site.client.post("/v1/writes/find", json={"id": KEY}),
        ):
            assert (answer.status_code, answer.json()["code"]) == (401, "UNAUTHORIZED")


def test_sync_rules_hide_a_delta_from_all_but_its_author_and_administrators(tenants: Tenants) -> None:
    boss, ada, reader = (tenants.sites[name] for name in ("boss", "ada", "reader"))
    delta, hlc = ada.push("ada-ruled", "ada")
    rules = {"version": 1, "buckets": [{"name": "none", "tables": ["other"], "filters": []}]}
    assert len(reader.find(delta, "ada-ruled")["writes"]) == 1
    boss.sent("POST", "/v1/admin/sync-rules/ada-ruled", rules)
    for identity in (delta, f"{delta}@{hlc}"):
        told = [len(site.find(identity, "ada-ruled")["writes"]) for site in (boss, ada, reader)]
        assert told == [1, 1, 0]


def test_a_worker_finds_the_job_that_it_holds(tenants: Tenants) -> None:
    job = tenants.sites["ada"].submit_job("ada-held", "ada-held")
    worker = tenants.sites["worker"]
    assert worker.find(job["job_id"])["writes"] == []
    claim = {"worker_id": "w", "queues": ["ada-held"], "wait_ms": 0, "lease_ms": 60_000}
    worker.sent("POST", "/v1/jobs/claim", claim)
    assert worker.one(job["job_id"])["effect"]["state"] == "leased"
    assert worker.find("ada-held")["writes"] == []


def test_a_namespace_has_its_own_writes(tmp_path: Path) -> None:
    with (
        write_site(tmp_path, "sqlite", SEMEL_NAMESPACES="blue") as site,
        WriteSite(site.server, "", "/ns/blue") as blue,
    ):
        blue.append("s", "k")
        assert len(blue.find("k")["writes"]) == 1
        assert site.find("k")["writes"] == []


def test_no_log_has_the_identity(tmp_path: Path) -> None:
    tokens = token_file(tmp_path, {"boss": ("the-token-of-boss", ["admin"], [])})
    secret = f"secret-{new_key()}"
    env = {"SEMEL_TOKENS": str(tokens), "SEMEL_ACCESS_LOG": "true", "SEMEL_LOG_LEVEL": "debug"}
    with write_site(tmp_path, "sqlite", **env) as made:
        for token in ("the-token-of-boss", "wrong", ""):
            with WriteSite(made.server, token) as site:
                site.client.get(f"/v1/writes/{secret}", params={"in": secret})
                site.client.post("/v1/writes/find", json={"id": secret, "in": secret})
                site.client.delete(f"/v1/writes/{secret}")
                site.client.get(f"/v1/writes/{secret}", headers={"Origin": "https://example.com"})
        folder = made.server.data
    logs = [*folder.glob("logs/*"), made.server.output]
    texts = {path.name: path.read_text() for path in logs if path.is_file()}
    assert {"access.jsonl", "audit.jsonl"} <= set(texts)
    lines = [json.loads(line) for line in texts["access.jsonl"].splitlines()]
    assert {line["route"] for line in lines if line["surface"] == "writes"} == {"/v1/writes/{}"}
    assert [name for name, text in texts.items() if secret in text] == []
