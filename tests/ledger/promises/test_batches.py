"""Batches: one identity, one block, all or nothing, and the same judgement as a single write."""

from __future__ import annotations

import pytest

from tests.ledger.rig import Ledger
from tests.ledger.words import Place, fresh, new_key, put, refused, relate, remove


def test_a_batch_is_one_transaction(ledger: Ledger, place: Place) -> None:
    client = fresh("client")
    groups = [[put("a", b"1"), put("b", b"2")], [remove("a")], [put("c", b"3", not_exists=True)]]
    told = ledger.batch(place, client, *groups, sequence=1, key=new_key())
    assert told.facts[1:] == (1, 1)
    assert (ledger.value(place, "a"), ledger.value(place, "b"), ledger.value(place, "c")) == (None, b"2", b"3")
    transaction = ledger.transaction(place, 1)
    kinds = [next(iter(operation)) for operation in transaction["operations"]]
    assert kinds == ["setEntity", "setEntity", "deleteEntity", "setEntity"]
    assert (transaction["sequence"], ledger.last(place, client)) == ("1", 1)


def test_later_groups_see_earlier_ones(ledger: Ledger, place: Place) -> None:
    client = fresh("client")
    told = ledger.batch(
        place,
        client,
        [put("a", b"1", not_exists=True)],
        [put("a", b"2", value_equals=b"1")],
        [put("a", b"3", version=1)],
        key=new_key(),
    )
    assert told.code == "OK", told
    assert ledger.value(place, "a") == b"3"


def test_one_failing_condition_fails_all(ledger: Ledger, place: Place) -> None:
    client, key = fresh("client"), new_key()
    groups = [[put("a", b"1")], [put("b", b"2"), put("c", b"3", must_exists=True)], [put("a", b"4", not_exists=True)]]
    told = ledger.batch(place, client, *groups, sequence=1, key=key)
    assert (told.code, told.error["key"]) == ("KEY_NOT_FOUND", "c")
    assert [ledger.value(place, name) for name in "abc"] == [None, None, None]
    assert (ledger.last(place, client), ledger.height(place)) == (0, 0)
    assert ledger.batch(place, client, groups[0], sequence=1, key=key).facts[1:] == (1, 1)


def test_a_duplicate_batch_is_replayed(ledger: Ledger, place: Place) -> None:
    client, key = fresh("client"), new_key()
    groups = [[put("a", b"1", not_exists=True)], [relate("doc:1", "viewer", "user:1")]]
    first = ledger.batch(place, client, *groups, sequence=1, key=key)
    for identity in ({"sequence": 1}, {"key": key}, {"sequence": 1, "key": key}):
        ledger.check_replay(ledger.batch(place, client, *groups, **identity), first)
    assert ledger.batch(place, client, *groups, sequence=2, key=key).code == "ALREADY_COMMITTED"
    assert ledger.batch(place, client, *groups, sequence=1, key=new_key()).code == "ALREADY_COMMITTED"
    assert ledger.batch(place, client, groups[0], sequence=1).code == "IDEMPOTENCY_KEY_REUSED"
    assert ledger.batch(place, client, groups[0], key=key).code == "IDEMPOTENCY_KEY_REUSED"
    assert ledger.batch(place, client, *groups, sequence=3).code == "SEQUENCE_GAP"
    assert ledger.height(place) == 1


def test_groups_do_not_count(ledger: Ledger, place: Place) -> None:
    """The same operations in other groups, or in a single write, are the same request."""
    client, key = fresh("client"), new_key()
    operations = [put("a", b"1"), put("b", b"2"), put("c", b"3")]
    first = ledger.batch(place, client, operations[:1], operations[1:], key=key)
    again = [
        ledger.batch(place, client, operations[:2], operations[2:], key=key),
        ledger.batch(place, client, operations, key=key),
        ledger.write(place, client, *operations, key=key),
    ]
    assert {told.facts for told in again} == {first.facts}
    assert {told.code for told in again} <= {"OK", "ALREADY_COMMITTED"}


@pytest.mark.parametrize("groups", [[], [[]], [[], []]], ids=["no-group", "empty-group", "empty-groups"])
def test_a_batch_without_operations_is_refused(ledger: Ledger, place: Place, groups: list[list[str]]) -> None:
    client = fresh("client")
    with refused("INVALID_ARGUMENT", "3203"):
        ledger.wire.ask(
            "BatchWrite",
            place.fields
            | {"clientId": {"id": client}, "sequence": "1", "operations": [{"operations": group} for group in groups]},
        )
    assert ledger.last(place, client) == 0


def test_a_batch_in_the_scope_of_the_organization(ledger: Ledger) -> None:
    org, client = ledger.new_org(), fresh("client")
    assert ledger.batch(org, client, [put("a", b"1")], [put("b", b"2")], sequence=1).facts[1:] == (1, 1)
    assert ledger.value(org, "b") == b"2"


def test_the_limit_of_operations_is_that_of_all_groups_together(ledger: Ledger, place: Place) -> None:
    client = fresh("client")
    groups = [[put(f"k{group}-{number}") for number in range(250)] for group in range(4)]
    with refused("INVALID_ARGUMENT", "3203"):
        ledger.batch(place, client, *groups, [put("one too many")], sequence=1)
    assert ledger.last(place, client) == 0
    assert ledger.batch(place, client, *groups, sequence=1).code == "OK"
