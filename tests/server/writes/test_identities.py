"""Every identity of every surface leads to the life of its write, on both stores."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.server.writes.write_site import STORES, WriteSite, new_key, write_site

TIME = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@pytest.fixture(scope="module", params=STORES)
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WriteSite]:
    with write_site(tmp_path_factory.mktemp("writes"), request.param) as made:
        yield made


def shown(site: WriteSite, write: dict[str, object]) -> object:
    """What the API shows at the path of an effect."""
    effect = write["effect"]
    assert isinstance(effect, dict)
    return site.sent("GET", effect["path"])


def test_an_unknown_identity_has_no_write(site: WriteSite) -> None:
    facts = site.find("never-used")
    assert facts == {"id": "never-used", "in": None, "writes": [], "complete": True, "hint": None}


def test_the_key_of_an_append_leads_to_the_append(site: WriteSite) -> None:
    site.append("orders/2026", "first", b"abc")
    key = new_key()
    answer = site.append("orders/2026", key, b"hello")
    for place in (None, "orders/2026"):
        write = site.one(key, place)
        assert (write["surface"], write["identity"], write["in"]) == ("streams", "idempotency_key", "orders/2026")
        assert TIME.fullmatch(write["first"]["at"])
        assert TIME.fullmatch(write["expires_at"])
        assert write["first"] == {"at": write["first"]["at"], "principal": None, "verdict": "fresh"}
        offset = answer.headers["stream-next-offset"]
        assert write["answer"] == {"verdict": "replay", "status": 204, "next_offset": offset}
        assert write["effect"]["kind"] == "append"
        assert shown(site, write).content == b"hello"  # type: ignore[attr-defined]
    assert site.find(key, "orders/2025")["writes"] == []


def test_the_key_of_a_closing_append_is_found(site: WriteSite) -> None:
    site.sent("PUT", "/v1/stream/closing", b"", content_type="text/plain")
    site.sent(
        "POST", "/v1/stream/closing", b"end", content_type="text/plain", idempotency_key="bye", stream_closed="true"
    )
    write = site.one("bye", "closing")
    assert (write["effect"]["closed"], write["effect"]["path"]) == (True, None)
    assert TIME.fullmatch(write["first"]["at"])


def test_the_key_of_a_deleted_stream_is_not_found_in_its_successor(site: WriteSite) -> None:
    key = new_key()
    site.append("deleted", key)
    site.sent("DELETE", "/v1/stream/deleted")
    assert site.find(key)["writes"] == []
    site.append("deleted", "another-key")
    assert site.find(key)["writes"] == site.find(key, "deleted")["writes"] == []


def test_one_key_in_two_streams_has_two_lives(site: WriteSite) -> None:
    key = new_key()
    site.append("twice/b", key)
    site.append("twice/a", key)
    found = site.find(key)
    assert [write["in"] for write in found["writes"]] == ["twice/a", "twice/b"]


def test_a_producer_id_leads_to_its_state(site: WriteSite) -> None:
    name = f"producer-{new_key()}"
    site.produce("made", name, 0)
    site.produce("made", name, 1)
    for place in (None, "made"):
        write = site.one(name, place)
        assert (write["identity"], write["in"]) == ("producer_id", "made")
        assert write["effect"] == {"kind": "producer", "path": "/v1/stream/made", "epoch": 0, "seq": 1}


def test_the_name_of_a_stream_leads_to_its_creation(site: WriteSite) -> None:
    site.append("a name/with ünicode", "k1")
    write = site.one("a name/with ünicode")
    assert (write["surface"], write["identity"]) == ("streams", "stream")
    assert write["effect"]["path"] == "/v1/stream/a%20name/with%20%C3%BCnicode"
    shown(site, write)


def test_an_event_id_and_its_committed_id_lead_to_the_event(site: WriteSite) -> None:
    name = f"event/{new_key()}"
    result = site.submit_event(name, "orders")
    for identity, kind in ((name, "event_id"), (str(result["committed_id"]), "committed_id")):
        for place in (None, "orders"):
            write = site.one(identity, place)
            assert (write["surface"], write["identity"], write["first"]["principal"]) == ("events", kind, "default")
            assert TIME.fullmatch(write["first"]["at"])
            assert write["answer"]["committed_id"] == result["committed_id"]
            assert shown(site, write).json()["id"] == name  # type: ignore[attr-defined]
    assert site.find(name, "other")["writes"] == []


def test_a_job_is_found_by_its_id_its_request_and_its_key(site: WriteSite) -> None:
    key = f"invoice {new_key()}"
    job = site.submit_job(key)
    for identity, kind in ((key, "idempotency_key"), (job["job_id"], "job_id"), (job["request_id"], "request_id")):
        for place in (None, "default"):
            write = site.one(identity, place)
            assert (write["surface"], write["identity"], write["in"]) == ("jobs", kind, "default")
            assert write["first"] == {"at": job["created_utc"], "principal": "default", "verdict": "fresh"}
            assert write["answer"] == {"verdict": "replay", "status": 200, "result": "in_progress"}
            assert shown(site, write).json()["job_id"] == job["job_id"]  # type: ignore[attr-defined]
        assert site.find(identity, "nobody-else")["writes"] == []


def test_a_transaction_is_found_by_its_id_its_key_its_sequence_and_its_height(site: WriteSite) -> None:
    place, key = site.make_vault(), new_key()
    made = site.transact(place, key)
    tx_id = made["txId"]["id"]
    identities = {
        (tx_id, None): "transaction_id",
        (tx_id, place): "transaction_id",
        (key, None): "idempotency_key",
        (key, place): "idempotency_key",
        (key, f"{place}/billing"): "idempotency_key",
        ("billing/1", place): "sequence",
        ("1", f"{place}/billing"): "sequence",
        ("1", place): "height",
    }
    for (identity, where), kind in identities.items():
        write = site.one(identity, where)
        assert (write["surface"], write["identity"], write["in"]) == ("ledger", kind, place)
        assert (write["first"]["principal"], write["answer"]["txId"]) == ("client:anonymous", tx_id)
        assert (write["effect"]["height"], write["effect"]["sequence"]) == (1, 1)
        assert TIME.fullmatch(write["first"]["at"])
        shown(site, write)
    assert site.find(key, f"{place}/other")["writes"] == []
    assert site.find(key, "17")["writes"] == []


def test_a_transaction_in_an_organization_is_found(site: WriteSite) -> None:
    org, key = site.make_vault().partition("/")[0], new_key()
    body = {"clientId": "c", "idempotencyKey": key, "operations": [{"setEntity": {"key": "k", "value": "AA=="}}]}
    site.sent("POST", f"/ledger/v1/orgs/{org}/writes", body)
    for place in (None, org, f"{org}/0", f"{org}/0/c"):
        write = site.one(key, place)
        assert write["in"] == org
        shown(site, write)


def test_a_delta_is_found_by_its_id_with_and_without_its_time(site: WriteSite) -> None:
    delta, hlc = site.push("shop", hlc=1_700_000_000_000 << 16)
    for identity in (delta, f"{delta}@{hlc}"):
        for place in (None, "shop"):
            write = site.one(identity, place)
            assert (write["surface"], write["identity"], write["in"]) == ("deltas", "delta_id", "shop")
            assert (write["first"]["principal"], write["effect"]["row_id"]) == ("c", "r1")
            assert [one["deltaId"] for one in shown(site, write).json()["deltas"]] == [delta]  # type: ignore[attr-defined]
    assert site.find(f"{delta}@{hlc + 1}")["writes"] == []
    assert site.find(delta, "other")["writes"] == []


def test_an_identity_of_several_surfaces_has_several_lives(site: WriteSite) -> None:
    key = new_key()
    site.append("several", key)
    site.submit_event(key)
    site.submit_job(key)
    assert [one["surface"] for one in site.find(key)["writes"]] == ["streams", "events", "jobs"]
