"""Lists: entities by prefix, relationships by their parts, resources by type; pages, and tokens that were altered."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.ledger.rig import Ledger, Site
from tests.ledger.words import WIRES, Message, Place, fresh, put, refused, relate, remove, unrelate

KEYS = sorted([f"user:{number:02}" for number in range(7)] + ["user", "use", "z", "ä", "Z", "user:é"], key=str.encode)
RELATIONS = [
    ("doc:1", "editor", "user:1"),
    ("doc:1", "viewer", "group:1#member"),
    ("doc:1", "viewer", "user:1"),
    ("doc:1", "viewer", "user:2"),
    ("doc:2", "viewer", "user:1"),
    ("folder:1", "viewer", "user:1"),
    ("folder:2", "owner", "user:3"),
]


@pytest.fixture
def full(ledger: Ledger, place: Place) -> Place:
    """Entities and relationships, at height 2."""
    client = fresh("client")
    ledger.commit(place, client, *[put(key, key) for key in reversed(KEYS)], sequence=1)
    ledger.commit(place, client, *[relate(*parts) for parts in reversed(RELATIONS)], sequence=2)
    return place


def pages(ledger: Ledger, rpc: str, place: Place, member: str, limit: int, **fields: Any) -> list[list[Any]]:
    """Every page, one after the other."""
    found, token = [], ""
    for _ in range(100):
        answer = ledger.ask(rpc, place, limit=limit, pageToken=token, **fields)
        found.append(answer.get(member, []))
        token = answer.get("nextPageToken", "")
        if not token:
            return found
        assert len(found[-1]) == limit, found
    raise AssertionError("a list without an end")


def triples(relationships: list[Message]) -> list[tuple[str, str, str]]:
    return [(one["resource"], one["relation"], one["subject"]) for one in relationships]


@pytest.mark.parametrize("limit", [1, 3, 5, 100])
def test_entities_in_order_and_in_pages(ledger: Ledger, full: Place, limit: int) -> None:
    listed = pages(ledger, "ListEntities", full, "entities", limit)
    assert [one["key"] for page in listed for one in page] == KEYS
    assert all(one["version"] == "1" for page in listed for one in page)


@pytest.mark.parametrize("prefix", ["", "user", "user:", "user:0", "z", "nothing", "ä"])
def test_entities_by_prefix(ledger: Ledger, full: Place, prefix: str) -> None:
    listed = pages(ledger, "ListEntities", full, "entities", 3, keyPrefix=prefix)
    assert [one["key"] for page in listed for one in page] == [key for key in KEYS if key.startswith(prefix)]


def test_expired_entities_are_listed_if_asked_for(ledger: Ledger, place: Place) -> None:
    past = int(time.time()) - 100
    ledger.commit(place, "c", put("a", b"1", expires_at=past), put("b", b"2"), sequence=1)
    assert [one["key"] for one in ledger.ask("ListEntities", place)["entities"]] == ["b"]
    everything = ledger.ask("ListEntities", place, includeExpired=True)["entities"]
    assert [(one["key"], one.get("expiresAt", "0")) for one in everything] == [("a", str(past)), ("b", "0")]


def test_relationships_are_not_listed_as_entities(ledger: Ledger, place: Place) -> None:
    ledger.commit(place, "c", relate(*RELATIONS[0]), sequence=1)
    assert "entities" not in ledger.ask("ListEntities", place)


FILTERS: dict[str, dict[str, str]] = {
    "none": {},
    "resource": {"resource": "doc:1"},
    "relation": {"relation": "viewer"},
    "subject": {"subject": "user:1"},
    "resource-relation": {"resource": "doc:1", "relation": "viewer"},
    "resource-subject": {"resource": "doc:1", "subject": "user:1"},
    "relation-subject": {"relation": "viewer", "subject": "user:1"},
    "all": {"resource": "doc:1", "relation": "viewer", "subject": "group:1#member"},
    "no-such": {"resource": "doc:9"},
    "half-a-name": {"resource": "doc:"},
}


@pytest.mark.parametrize("name", FILTERS)
def test_relationships_by_their_parts(ledger: Ledger, full: Place, name: str) -> None:
    wanted = FILTERS[name]
    parts = ("resource", "relation", "subject")
    expected = [one for one in RELATIONS if all(one[parts.index(part)] == value for part, value in wanted.items())]
    for limit in (2, 100):
        listed = pages(ledger, "ListRelationships", full, "relationships", limit, **wanted)
        assert sorted(triples([one for page in listed for one in page])) == expected


def test_resources_by_type(ledger: Ledger, full: Place) -> None:
    def listed(kind: str, limit: int) -> list[str]:
        return [
            one for page in pages(ledger, "ListResources", full, "resources", limit, resourceType=kind) for one in page
        ]

    assert listed("doc", 100) == ["doc:1", "doc:2"]
    assert listed("folder", 1) == ["folder:1", "folder:2"]
    assert (listed("fold", 100), listed("user", 100)) == ([], [])


def test_lists_at_a_height(ledger: Ledger, full: Place) -> None:
    client = fresh("client")
    ledger.commit(full, client, remove("z"), put("new"), unrelate(*RELATIONS[0]), sequence=1)
    now = ledger.ask("ListEntities", full, limit=1000)
    then = ledger.ask("ListEntities", full, limit=1000, atHeight="2")
    assert (now["blockHeight"], then["blockHeight"]) == ("3", "2")
    assert [one["key"] for one in then["entities"]] == KEYS
    assert {one["key"] for one in now["entities"]} == {*KEYS, "new"} - {"z"}
    assert "entities" not in ledger.ask("ListEntities", full, keyPrefix="new", atHeight="2")
    assert sorted(triples(ledger.ask("ListRelationships", full)["relationships"])) == RELATIONS[1:]
    assert sorted(triples(ledger.ask("ListRelationships", full, atHeight="2")["relationships"])) == RELATIONS
    assert "relationships" not in ledger.ask("ListRelationships", full, atHeight="1")
    assert "resources" not in ledger.ask("ListResources", full, resourceType="doc", atHeight="1")


def test_pages_stay_at_the_height_of_the_first(ledger: Ledger, full: Place) -> None:
    """Whatever is written meanwhile."""
    first = ledger.ask("ListEntities", full, limit=5)
    client = fresh("client")
    ledger.commit(full, client, *[remove(key) for key in KEYS], put("user:00a"), put("zz"), sequence=1)
    second = ledger.ask("ListEntities", full, limit=1000, pageToken=first["nextPageToken"])
    assert [one["key"] for one in first["entities"] + second["entities"]] == KEYS
    assert first["blockHeight"] == second["blockHeight"] == "2"


def test_the_default_and_the_largest_page(ledger: Ledger, place: Place) -> None:
    for block in range(2):
        operations = [put(f"k{block}{number:03}") for number in range(600)]
        ledger.commit(place, "c", *operations, sequence=block + 1)
    assert len(ledger.ask("ListEntities", place)["entities"]) == 100
    assert len(ledger.ask("ListEntities", place, limit=1000)["entities"]) == 1000
    listed = pages(ledger, "ListEntities", place, "entities", 1000)
    assert [len(page) for page in listed] == [1000, 200]


def test_the_scope_of_the_organization(ledger: Ledger) -> None:
    org = ledger.new_org()
    vault = ledger.new_vault(org)
    ledger.commit(org, "c", put("a"), put("b"), sequence=1)
    ledger.commit(vault, "c", put("v"), sequence=1)
    assert [one["key"] for one in ledger.ask("ListEntities", org)["entities"]] == ["a", "b"]
    assert [one["key"] for one in ledger.ask("ListEntities", vault)["entities"]] == ["v"]


# -- tokens -----------------------------------------------------------------------------------------------------------


def altered(token: str) -> Iterator[str]:
    """The token with each of its letters changed, cut short, and made longer."""
    for at, letter in enumerate(token[:-1]):
        yield token[:at] + ("A" if letter != "A" else "B") + token[at + 1 :]
    yield token[:-4]
    yield token + "AAAA"
    yield "AAAA" + token


@pytest.fixture
def token(ledger: Ledger, full: Place) -> str:
    """Of the second page of the entities of users."""
    return str(ledger.ask("ListEntities", full, keyPrefix="user", limit=2)["nextPageToken"])


def test_an_altered_token_is_refused(ledger: Ledger, place: Place) -> None:
    ledger.commit(place, "c", *[put(f"k{number}") for number in range(5)], sequence=1)
    good = ledger.ask("ListEntities", place, limit=2)["nextPageToken"]
    for wrong in altered(good):
        with refused("INVALID_ARGUMENT", "3203"):
            ledger.ask("ListEntities", place, limit=2, pageToken=wrong)
    assert len(ledger.ask("ListEntities", place, limit=2, pageToken=good)["entities"]) == 2


def test_a_token_of_another_scope_is_refused(ledger: Ledger, full: Place, token: str) -> None:
    others = [full.whole, ledger.new_vault(full), ledger.new_place()]
    for other in others:
        ledger.commit(other, "c", *[put(key) for key in KEYS], sequence=1)
        with refused("INVALID_ARGUMENT", "3203"):
            ledger.ask("ListEntities", other, keyPrefix="user", limit=2, pageToken=token)


def test_a_token_of_another_list_is_refused(ledger: Ledger, full: Place, token: str) -> None:
    wrong: list[tuple[str, Message]] = [
        ("ListEntities", {"keyPrefix": "use"}),
        ("ListEntities", {}),
        ("ListEntities", {"keyPrefix": "user", "includeExpired": True}),
        ("ListEntities", {"keyPrefix": "user", "atHeight": "1"}),
        ("ListRelationships", {}),
        ("ListResources", {"resourceType": "user"}),
    ]
    for rpc, fields in wrong:
        with refused("INVALID_ARGUMENT", "3203"):
            ledger.ask(rpc, full, limit=2, pageToken=token, **fields)
    relations = ledger.ask("ListRelationships", full, resource="doc:1", limit=2)["nextPageToken"]
    for other in ({}, {"resource": "doc:2"}, {"resource": "doc:1", "relation": "viewer"}):
        with refused("INVALID_ARGUMENT", "3203"):
            ledger.ask("ListRelationships", full, limit=2, pageToken=relations, **other)


def test_a_page_may_have_another_size(ledger: Ledger, full: Place, token: str) -> None:
    rest = ledger.ask("ListEntities", full, keyPrefix="user", limit=1000, pageToken=token)["entities"]
    assert [one["key"] for one in rest] == [key for key in KEYS if key.startswith("user")][2:]


@pytest.mark.each_store
def test_a_token_is_good_on_every_node_and_wire(site: Site) -> None:
    """Its key is in the store."""
    http, grpc = (site.ledger(via) for via in WIRES)
    place = http.new_place()
    http.commit(place, "c", *[put(key) for key in KEYS], sequence=1)
    for maker in (http, grpc):
        made = maker.ask("ListEntities", place, limit=2)["nextPageToken"]
        for ledger in (http, grpc) * 2:
            rest = ledger.ask("ListEntities", place, limit=1000, pageToken=made)["entities"]
            assert [one["key"] for one in rest] == KEYS[2:]
