"""Deletions that are repeated, answers that would be too large, and lists whose page tokens are long."""

from __future__ import annotations

import pytest

from tests.ledger.rig import Ledger
from tests.ledger.words import Place, data, fresh, put, refused, relate

pytestmark = pytest.mark.each_wire

MIB = 1024 * 1024
MOST_ANSWERED = 3 * MIB
LONG = "𐍈"
"""A character of four bytes."""


# -- deleting again ---------------------------------------------------------------------------------------------------


def test_an_organization_is_deleted_once(ledger: Ledger, place: Place) -> None:
    """To say it again is no error, and no entry of the log."""
    slug = {"slug": str(place.org)}
    first = ledger.ask("DeleteOrganization", slug=slug)
    entries = ledger.entries(place)
    for _ in range(2):
        assert ledger.ask("DeleteOrganization", slug=slug) == first
    assert ledger.entries(place) == entries == 2
    assert ledger.ask("GetOrganization", slug=slug)["status"] == "ORGANIZATION_STATUS_DELETED"
    with refused("FAILED_PRECONDITION"):
        ledger.set_org(place, status="ORGANIZATION_STATUS_ACTIVE")
    with refused("FAILED_PRECONDITION"):
        ledger.set_org(place, status="ORGANIZATION_STATUS_DELETED", fence=True)
    assert ledger.entries(place) == entries


def test_a_vault_is_deleted_once(ledger: Ledger, place: Place) -> None:
    first = ledger.ask("DeleteVault", place)
    entries = ledger.entries(place)
    for _ in range(2):
        assert ledger.ask("DeleteVault", place) == first
    assert ledger.entries(place) == entries == 2
    assert ledger.ask("GetVault", place)["status"] == "VAULT_STATUS_DELETED"
    with refused("FAILED_PRECONDITION"):
        ledger.http.patch(f"/ledger/v1/orgs/{place.org}/vaults/{place.vault}", status="VAULT_STATUS_ACTIVE")
    assert ledger.entries(place) == entries


# -- many keys at once ------------------------------------------------------------------------------------------------


def test_a_batch_of_reads_that_is_too_large_is_refused(ledger: Ledger, place: Place) -> None:
    """Keys and values count, each as often as it is asked for; up to the bound all of it is told."""
    sizes = {"a": MIB, "b": MIB, "c": MIB - 3, "d": 1}
    ledger.commit(place, "c", *[put(key, b"v" * size) for key, size in sizes.items()], sequence=1)
    fits = ["a", "b", "c"]
    assert sum(len(key) + sizes[key] for key in fits) == MOST_ANSWERED
    told = ledger.ask("BatchRead", place, keys=fits)["results"]
    assert [(one["key"], len(data(one["value"]))) for one in told] == [(key, sizes[key]) for key in fits]
    for keys in ([*fits, "d"], [*fits, "missing"], ["a", "a", "a"], ["a"] * 1_000, ["a", "b", "d", "a"]):
        with refused("INVALID_ARGUMENT", "3203") as caught:
            ledger.ask("BatchRead", place, keys=keys)
        assert str(MOST_ANSWERED) in caught.value.message


# -- long tokens ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rpc", ["ListRelationships", "ListResources"])
def test_a_token_of_the_longest_relationships(ledger: Ledger, place: Place, rpc: str) -> None:
    client = fresh("client")
    made = [(f"doc:{number}".ljust(512, LONG), LONG * 64, f"user:{number}".ljust(512, LONG)) for number in range(3)]
    ledger.commit(place, client, *[relate(*parts) for parts in made], sequence=1)
    is_whole = rpc == "ListRelationships"
    found: list[object] = []
    longest, token = 0, ""
    for _ in made:
        page = ledger.ask(rpc, place, limit=1, pageToken=token)
        [one] = page["relationships" if is_whole else "resources"]
        found.append((one["resource"], one["relation"], one["subject"]) if is_whole else one)
        token = page.get("nextPageToken", "")
        longest = max(longest, len(token))
    assert token == ""
    assert found == (made if is_whole else [parts[0] for parts in made])
    assert longest > (4_096 if is_whole else 2_048)


def test_a_long_token_of_a_list_with_long_filters(ledger: Ledger, place: Place) -> None:
    resource, relation = "doc:".ljust(512, LONG), LONG * 64
    subjects = [f"user:{number}".ljust(512, LONG) for number in range(2)]
    ledger.commit(place, "c", *[relate(resource, relation, subject) for subject in subjects], sequence=1)
    token = ""
    for subject in subjects:
        page = ledger.ask("ListRelationships", place, resource=resource, relation=relation, limit=1, pageToken=token)
        assert [one["subject"] for one in page["relationships"]] == [subject]
        token = page.get("nextPageToken", "")
    assert token == ""
