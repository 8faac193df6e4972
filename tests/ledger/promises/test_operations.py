"""Operations: what each does to what is there and to what is not, versions, no-ops, order, and two that look alike."""

from __future__ import annotations

import time

import pytest

from tests.ledger.rig import Ledger
from tests.ledger.words import Message, Place, expire, fresh, new_key, put, refused, relate, remove, unrelate

RELATION = ("doc:1", "viewer", "user:1")


def relationships(ledger: Ledger, place: Place) -> list[tuple[str, str, str]]:
    listed = ledger.ask("ListRelationships", place).get("relationships", [])
    return [(one["resource"], one["relation"], one["subject"]) for one in listed]


def entity(ledger: Ledger, place: Place, key: str) -> Message:
    [found] = ledger.ask("ListEntities", place, keyPrefix=key)["entities"]
    assert isinstance(found, dict)
    return found


def test_set_creates_and_replaces(ledger: Ledger, place: Place) -> None:
    """The version is the height of the block that last set it."""
    client, later = fresh("client"), int(time.time()) + 10_000
    ledger.commit(place, client, put("a", b"1", expires_at=later), sequence=1)
    assert entity(ledger, place, "a") == {"key": "a", "value": "MQ==", "expiresAt": str(later), "version": "1"}
    ledger.commit(place, client, put("b", b"x"), sequence=2)
    ledger.commit(place, client, put("a", b"2"), sequence=3)
    replaced = entity(ledger, place, "a")
    assert (replaced["value"], replaced["version"]) == ("Mg==", "3")
    assert replaced.get("expiresAt", "0") == "0"
    assert entity(ledger, place, "b")["version"] == "2"


def test_delete_removes_and_is_content_with_nothing(ledger: Ledger, place: Place) -> None:
    client = fresh("client")
    ledger.commit(place, client, put("a", b"1"), sequence=1)
    ledger.commit(place, client, remove("a"), sequence=2)
    assert ledger.value(place, "a") is None
    assert ledger.commit(place, client, remove("a"), sequence=3).height == 3


def test_relationships_are_there_or_not(ledger: Ledger, place: Place) -> None:
    client = fresh("client")
    group = ("doc:1", "viewer", "group:eng#member")
    ledger.commit(place, client, relate(*RELATION), relate(*group), sequence=1)
    ledger.commit(place, client, relate(*RELATION), sequence=2)
    assert sorted(relationships(ledger, place)) == sorted([RELATION, group])
    ledger.commit(place, client, unrelate(*RELATION), sequence=3)
    ledger.commit(place, client, unrelate(*RELATION), sequence=4)
    assert relationships(ledger, place) == [group]


def test_operations_are_applied_in_order(ledger: Ledger, place: Place) -> None:
    client = fresh("client")
    operations = [put("a", b"1"), remove("a"), put("a", b"2"), relate(*RELATION), unrelate(*RELATION), remove("b")]
    told = ledger.commit(place, client, *operations, sequence=1)
    assert (ledger.value(place, "a"), relationships(ledger, place)) == (b"2", [])
    assert told.height == 1
    stored = ledger.transaction(place, 1)["operations"]
    assert [set(one) for one in stored] == [set(one) for one in operations]


@pytest.mark.parametrize("operation", [remove("x"), unrelate(*RELATION)], ids=["entity", "relationship"])
def test_a_transaction_of_nothing_still_counts(ledger: Ledger, place: Place, operation: Message) -> None:
    client = fresh("client")
    assert ledger.commit(place, client, operation, sequence=1).facts[1:] == (1, 1)
    assert ledger.commit(place, client, operation, key=new_key()).facts[1:] == (2, 2)
    assert (ledger.last(place, client), ledger.height(place)) == (2, 2)


@pytest.mark.parametrize("operation", [relate(*RELATION), unrelate(*RELATION)], ids=["create", "delete"])
def test_relationships_need_a_vault(ledger: Ledger, operation: Message) -> None:
    org, client = ledger.new_org(), fresh("client")
    with refused("INVALID_ARGUMENT", "3203"):
        ledger.write(org, client, put("a", b"1"), operation, sequence=1)
    assert (ledger.last(org, client), ledger.value(org, "a")) == (0, None)


def test_only_the_system_expires_entities(ledger: Ledger, place: Place) -> None:
    client = fresh("client")
    ledger.commit(place, client, put("a", b"1"), sequence=1)
    with refused("PERMISSION_DENIED"):
        ledger.write(place, client, put("b", b"1"), expire("a"), sequence=2)
    assert (ledger.last(place, client), ledger.value(place, "a"), ledger.value(place, "b")) == (1, b"1", None)


def test_values_are_any_bytes(ledger: Ledger, place: Place) -> None:
    values = [b"", b"\0", bytes(range(256)), "é世界".encode()]
    keys = ["empty", "a/b c?d#e%f", "é世界", "UPPER lower", "..", ":", "k" * 1024]
    client = fresh("client")
    operations = [put(key, value) for key, value in zip(keys, values * 2, strict=False)]
    ledger.commit(place, client, *operations, sequence=1)
    assert [ledger.value(place, key) for key in keys] == (values * 2)[: len(keys)]


def test_4_two_payloads_that_read_alike_are_two(ledger: Ledger, place: Place) -> None:
    """Under one identity the second is refused, by key, by sequence and by both; never answered with success."""
    client, key = fresh("client"), new_key()
    first = ledger.commit(place, client, put("a", b"bc"), sequence=1, key=key)
    for identity in ({"key": key}, {"sequence": 1}, {"sequence": 1, "key": key}, {"sequence": 1, "key": new_key()}):
        told = ledger.write(place, client, put("ab", b"c"), **identity)
        assert (told.code, told.tx) == ("IDEMPOTENCY_KEY_REUSED", first.tx)
    assert (ledger.value(place, "a"), ledger.value(place, "ab"), ledger.height(place)) == (b"bc", None, 1)


PAYLOADS: dict[str, tuple[list[Message], list[Message]]] = {
    "order": ([put("a", b"1"), put("b", b"2")], [put("b", b"2"), put("a", b"1")]),
    "expiry": ([put("a", b"1")], [put("a", b"1", expires_at=4_000_000_000)]),
    "condition": ([put("a", b"1")], [put("a", b"1", not_exists=True)]),
    "condition-kind": ([put("a", b"1", not_exists=True)], [put("a", b"1", must_exists=True)]),
    "kind": ([remove("a")], [put("a")]),
    "relation": ([relate("a:b", "c", "d:e")], [relate("a:b", "cd", "d:e")]),
    "direction": ([relate("a:b", "c", "d:e")], [unrelate("a:b", "c", "d:e")]),
    "count": ([put("a", b"1")], [put("a", b"1"), put("a", b"1")]),
}


@pytest.mark.parametrize("case", PAYLOADS)
def test_what_makes_two_payloads_differ(ledger: Ledger, place: Place, case: str) -> None:
    client, key = fresh("client"), new_key()
    first, second = PAYLOADS[case]
    ledger.commit(place, client, *first, key=key)
    assert ledger.write(place, client, *second, key=key).code == "IDEMPOTENCY_KEY_REUSED"


def test_what_does_not_make_them_differ(ledger: Ledger, place: Place) -> None:
    """A wish for proofs, one call or groups, a false that means the opposite, an expiry of 0."""
    client, key = fresh("client"), new_key()
    first = ledger.commit(place, client, put("a", b"1", not_exists=True), put("b", b"2"), key=key)
    alike = [put("a", b"1", must_exists=False, expires_at=0), put("b", b"2", expires_at=0)]
    assert ledger.write(place, client, *alike, key=key, proofs=True).code in ("OK", "ALREADY_COMMITTED")
    for told in (
        ledger.write(place, client, *alike, key=key),
        ledger.batch(place, client, alike[:1], alike[1:], key=key),
        ledger.batch(place, client, alike, key=key, proofs=True),
    ):
        assert told.facts == first.facts
        assert told.code in ("OK", "ALREADY_COMMITTED")
    assert ledger.height(place) == 1
