"""The lives of organizations and vaults: made once for a key, listed, suspended, read-only, deleted."""

from __future__ import annotations

import pytest

from tests.ledger.http_wire import ROOT
from tests.ledger.rig import Ledger
from tests.ledger.words import EMPTY_STATE, Message, Place, data, fresh, put, refused, relate


def org_of(ledger: Ledger, place: Place) -> Message:
    return dict(ledger.ask("GetOrganization", slug={"slug": str(place.org)}))


def set_status(ledger: Ledger, place: Place, status: str) -> None:
    """Of the vault, or of the organization."""
    if place.vault:
        ledger.http.patch(f"{ROOT}/{place.org}/vaults/{place.vault}", status=f"VAULT_STATUS_{status}")
    else:
        ledger.set_org(place, status=f"ORGANIZATION_STATUS_{status}")


# -- making -----------------------------------------------------------------------------------------------------------


def test_a_new_organization(ledger: Ledger) -> None:
    name = fresh("shop é")
    org = ledger.new_org(name)
    found = org_of(ledger, org)
    assert 0 < org.org < 2**53
    assert (found["slug"], found["name"], found["status"]) == (
        {"slug": str(org.org)},
        name,
        "ORGANIZATION_STATUS_ACTIVE",
    )
    assert (found["evictionInterval"], found["ttlSeconds"], found["fence"]) == ("1000", "86400", False)
    assert found["entries"] == "0"


def test_a_new_vault(ledger: Ledger) -> None:
    org = ledger.new_org()
    vault = ledger.new_vault(org)
    found = ledger.ask("GetVault", vault)
    assert (found["organization"], found["vault"]) == ({"slug": str(org.org)}, {"slug": str(vault.vault)})
    assert (found["height"], found["status"]) == ("0", "VAULT_STATUS_ACTIVE")
    assert data(found["stateRoot"]["value"]) == EMPTY_STATE
    assert found["retentionPolicy"]["mode"] == "BLOCK_RETENTION_MODE_FULL"
    ledger.commit(vault, "c", put("a"), sequence=1)
    grown = ledger.ask("GetVault", vault)
    assert (grown["height"], grown["stateRoot"]) == ("1", ledger.ask("GetTip", vault)["stateRoot"])


def test_a_compacted_vault_says_so(ledger: Ledger) -> None:
    vault = ledger.new_vault(ledger.new_org(), keep=7)
    policy = ledger.ask("GetVault", vault)["retentionPolicy"]
    assert policy == {"mode": "BLOCK_RETENTION_MODE_COMPACTED", "retentionBlocks": "7"}


def test_a_compacted_vault_keeps_at_least_one_body(ledger: Ledger) -> None:
    org = ledger.new_org()
    for policy in (
        {"mode": "BLOCK_RETENTION_MODE_COMPACTED"},
        {"mode": "BLOCK_RETENTION_MODE_COMPACTED", "retentionBlocks": "0"},
    ):
        with refused("INVALID_ARGUMENT", "3203"):
            ledger.ask("CreateVault", org, retentionPolicy=policy)
    assert "vaults" not in ledger.ask("ListVaults", org)


def test_each_creation_without_a_key_is_another_one(ledger: Ledger) -> None:
    assert len({ledger.new_org("same").org for _ in range(3)}) == 3
    org = ledger.new_org()
    assert len({ledger.new_vault(org).vault for _ in range(3)}) == 3


def test_a_creation_with_a_key_happens_once(ledger: Ledger) -> None:
    metadata = (("idempotency-key", fresh("creation")),)
    first, again = [ledger.wire.ask("CreateOrganization", {"name": "one"}, metadata) for _ in range(2)]
    assert dict(again) == dict(first)
    assert (first.is_replay, again.is_replay) == (False, True)
    with refused("FAILED_PRECONDITION"):
        ledger.wire.ask("CreateOrganization", {"name": "two"}, metadata)


def test_a_vault_with_a_key_is_made_once(ledger: Ledger) -> None:
    org, metadata = ledger.new_org(), (("idempotency-key", fresh("creation")),)
    first, again = [ledger.wire.ask("CreateVault", org.fields, metadata) for _ in range(2)]
    assert dict(again) == dict(first)
    assert (first.is_replay, again.is_replay) == (False, True)
    policy = {"mode": "BLOCK_RETENTION_MODE_COMPACTED", "retentionBlocks": "3"}
    others = ledger.new_org()
    for other in (org.fields | {"retentionPolicy": policy}, others.fields):
        with refused("FAILED_PRECONDITION"):
            ledger.wire.ask("CreateVault", other, metadata)
    assert (ledger.entries(org), ledger.entries(others)) == (1, 0)


def test_a_vault_of_an_organization_that_is_not_there(ledger: Ledger) -> None:
    with refused("NOT_FOUND", "3100"):
        ledger.new_vault(Place(4_711))
    with refused("NOT_FOUND", "3100"):
        ledger.ask("GetOrganization", slug={"slug": "4711"})
    with refused("NOT_FOUND", "3101"):
        ledger.ask("GetVault", Place(ledger.new_org().org, 4_711))


# -- listing ----------------------------------------------------------------------------------------------------------


def test_vaults_in_pages(ledger: Ledger) -> None:
    org = ledger.new_org()
    made = {ledger.new_vault(org).vault for _ in range(5)}
    found: list[int] = []
    token = ""
    while True:
        page = ledger.ask("ListVaults", org, limit=2, pageToken=token)
        found += [int(one["vault"]["slug"]) for one in page.get("vaults", [])]
        token = page.get("nextPageToken", "")
        if not token:
            break
        assert len(page["vaults"]) == 2
    assert (sorted(found), len(found)) == (sorted(made), 5)
    foreign = ledger.new_org()
    token = ledger.ask("ListVaults", org, limit=2)["nextPageToken"]
    with refused("INVALID_ARGUMENT", "3203"):
        ledger.ask("ListVaults", foreign, limit=2, pageToken=token)
    with refused("INVALID_ARGUMENT", "3203"):
        ledger.ask("ListVaults", org, limit=2, pageToken=token[:-1] + ("A" if token[-1] != "A" else "B") + "AA")


# -- changing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["MIGRATING", "SUSPENDED", "DELETING"])
def test_only_an_active_organization_takes_writes(ledger: Ledger, place: Place, status: str) -> None:
    ledger.commit(place, "c", put("a", b"1"), sequence=1)
    set_status(ledger, place.whole, status)
    assert org_of(ledger, place)["status"] == f"ORGANIZATION_STATUS_{status}"
    for target in (place, place.whole):
        with refused("FAILED_PRECONDITION"):
            ledger.write(target, "c", put("a", b"2"), sequence=2)
    assert (ledger.value(place, "a"), ledger.last(place, "c"), ledger.height(place)) == (b"1", 1, 1)
    set_status(ledger, place.whole, "ACTIVE")
    assert ledger.commit(place, "c", put("a", b"2"), sequence=2).height == 2


def test_a_deleted_organization(ledger: Ledger, place: Place) -> None:
    ledger.commit(place, "c", put("a", b"1"), sequence=1)
    ledger.ask("DeleteOrganization", slug={"slug": str(place.org)})
    assert org_of(ledger, place)["status"] == "ORGANIZATION_STATUS_DELETED"
    for target in (place, place.whole):
        with refused("FAILED_PRECONDITION"):
            ledger.write(target, "c", put("a", b"2"), sequence=2)
        for rpc in ("GetTip", "ListEntities"):
            with refused("NOT_FOUND", "3100"):
                ledger.ask(rpc, target)
        with refused("NOT_FOUND", "3100"):
            ledger.last(target, "c")
    with refused("NOT_FOUND", "3100"):
        ledger.value(place, "a")


def test_a_read_only_vault(ledger: Ledger, place: Place) -> None:
    ledger.commit(place, "c", put("a", b"1"), sequence=1)
    set_status(ledger, place, "READ_ONLY")
    assert ledger.ask("GetVault", place)["status"] == "VAULT_STATUS_READ_ONLY"
    with refused("PERMISSION_DENIED"):
        ledger.write(place, "c", put("a", b"2"), sequence=2)
    assert (ledger.value(place, "a"), ledger.last(place, "c")) == (b"1", 1)
    ledger.commit(place.whole, "c", put("a"), sequence=1)
    set_status(ledger, place, "ACTIVE")
    ledger.commit(place, "c", put("a", b"2"), sequence=2)


def test_a_deleted_vault(ledger: Ledger, place: Place) -> None:
    sibling = ledger.new_vault(place)
    ledger.commit(place, "c", put("a", b"1"), relate("doc:1", "viewer", "user:1"), sequence=1)
    ledger.ask("DeleteVault", place)
    assert ledger.ask("GetVault", place)["status"] == "VAULT_STATUS_DELETED"
    statuses = {one["vault"]["slug"]: one["status"] for one in ledger.ask("ListVaults", place.whole)["vaults"]}
    assert statuses[str(place.vault)] == "VAULT_STATUS_DELETED"
    with refused("NOT_FOUND", "3101"):
        ledger.write(place, "c", put("a"), sequence=2)
    for rpc in ("GetTip", "ListEntities", "ListRelationships"):
        with refused("NOT_FOUND", "3101"):
            ledger.ask(rpc, place)
    with refused("NOT_FOUND", "3101"):
        ledger.last(place, "c")
    ledger.commit(sibling, "c", put("a"), sequence=1)


def test_changes_that_cannot_be(ledger: Ledger, place: Place) -> None:
    before = ledger.entries(place)
    for status in ("ORGANIZATION_STATUS_UNSPECIFIED", "ORGANIZATION_STATUS_CLOSED", "VAULT_STATUS_ACTIVE", 77):
        with refused("INVALID_ARGUMENT", "3203"):
            ledger.http.patch(f"{ROOT}/{place.org}", status=status)
    for wrong in ("VAULT_STATUS_UNSPECIFIED", "ORGANIZATION_STATUS_ACTIVE", "READ_ONLY_", 77):
        with refused("INVALID_ARGUMENT", "3203"):
            ledger.http.patch(f"{ROOT}/{place.org}/vaults/{place.vault}", status=wrong)
    assert ledger.entries(place) == before


def test_deleting_what_is_not_there(ledger: Ledger) -> None:
    with refused("NOT_FOUND", "3100"):
        ledger.ask("DeleteOrganization", slug={"slug": "4711"})
    with refused("NOT_FOUND", "3101"):
        ledger.ask("DeleteVault", Place(ledger.new_org().org, 4_711))
