"""`semel find`: every identity of every surface, as a timeline and as JSON; exit code 1 if there is no such write."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.command import Semel
from tests.server.writes.write_site import STORES, WriteSite, new_key, write_site


@pytest.fixture(scope="module", params=STORES)
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WriteSite]:
    with write_site(tmp_path_factory.mktemp("find"), request.param) as made:
        yield made


def test_every_identity_is_found(site: WriteSite) -> None:
    semel, key = Semel(site.server.url), new_key()
    place = site.make_vault()
    site.append("orders", key)
    site.produce("orders", f"p-{key}", 0)
    event = site.submit_event(f"e-{key}")
    job = site.submit_job(f"j-{key}")
    made = site.transact(place, key)
    delta, hlc = site.push("shop")
    expected = {
        (key, "orders"): "streams idempotency_key",
        (f"p-{key}", ""): "streams producer_id",
        ("orders", ""): "streams stream",
        (f"e-{key}", ""): "events event_id",
        (str(event["committed_id"]), "p"): "events committed_id",
        (f"j-{key}", ""): "jobs idempotency_key",
        (job["job_id"], ""): "jobs job_id",
        (job["request_id"], ""): "jobs request_id",
        (key, place): "ledger idempotency_key",
        (made["txId"]["id"], ""): "ledger transaction_id",
        ("billing/1", place): "ledger sequence",
        ("1", place): "ledger height",
        (delta, ""): "deltas delta_id",
        (f"{delta}@{hlc}", "shop"): "deltas delta_id",
    }
    for (identity, where), kind in expected.items():
        named = ["--in", where] if where else []
        facts = semel.here("find", identity, *named, "--json").facts
        assert [f"{one['surface']} {one['identity']}" for one in facts["writes"]] == [kind], (identity, where)
        told = semel.here("find", identity, *named)
        assert told.code == 0, told.err
        assert told.out.startswith(kind.replace(" ", "  ")), told.out


def test_the_timeline_is_readable(site: WriteSite) -> None:
    key = new_key()
    site.append("told", key)
    [write] = site.find(key)["writes"]
    lines = Semel(site.server.url).here("find", key).out.splitlines()
    offset = write["effect"]["next_offset"]
    assert lines == [
        "streams  idempotency_key  in told",
        f"  {write['first']['at']}  took effect",
        f"  now                       a retry gets 204 replay, next_offset {offset}",
        f"  {write['expires_at']}  the receipt expires",
        f"  effect                    append at /v1/stream/told?offset={'0' * 16}_{'0' * 16}",
    ]


def test_a_write_that_is_not_found_ends_with_1(site: WriteSite) -> None:
    semel = Semel(site.server.url)
    told = semel.here("find", "never-used")
    assert (told.code, told.out) == (1, "No write of this identity was found.\n")
    told = semel.here("find", "never-used", "--json")
    assert (told.code, '"writes": []' in told.out) == (1, True)
