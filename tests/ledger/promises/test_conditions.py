"""Conditions: when each holds, what a failed one says, and that it leaves nothing behind."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.ledger.rig import Ledger, Told
from tests.ledger.words import Message, Place, fresh, new_key, put, remove, text

KEY = "thing"
VALUE = b"stands"
MISSING = "not-there"


@pytest.fixture
def client(ledger: Ledger, place: Place) -> str:
    """Has committed the thing, at height 1."""
    name = fresh("client")
    ledger.commit(place, name, put(KEY, VALUE), sequence=1)
    return name


def check_failed(told: Told, code: str, key: str) -> None:
    """The error tells what stands there."""
    assert (told.code, told.error["key"]) == (code, key), told
    if code == "KEY_NOT_FOUND":
        assert not {"currentVersion", "currentValue"} & set(told.error), told
    else:
        assert (told.error["currentVersion"], told.error["currentValue"]) == ("1", text(VALUE)), told


HOLDS: dict[str, tuple[str, Message]] = {
    "not_exists-absent": (MISSING, {"not_exists": True}),
    "must_exists-present": (KEY, {"must_exists": True}),
    "not_exists-false-present": (KEY, {"not_exists": False}),
    "must_exists-false-absent": (MISSING, {"must_exists": False}),
    "version-equal": (KEY, {"version": 1}),
    "value-equal": (KEY, {"value_equals": VALUE}),
}
FAILS: dict[str, tuple[str, Message, str]] = {
    "not_exists-present": (KEY, {"not_exists": True}, "KEY_EXISTS"),
    "must_exists-absent": (MISSING, {"must_exists": True}, "KEY_NOT_FOUND"),
    "not_exists-false-absent": (MISSING, {"not_exists": False}, "KEY_NOT_FOUND"),
    "must_exists-false-present": (KEY, {"must_exists": False}, "KEY_EXISTS"),
    "version-other": (KEY, {"version": 2}, "VERSION_MISMATCH"),
    "version-zero": (KEY, {"version": 0}, "VERSION_MISMATCH"),
    "version-absent": (MISSING, {"version": 1}, "KEY_NOT_FOUND"),
    "version-zero-absent": (MISSING, {"version": 0}, "KEY_NOT_FOUND"),
    "value-other": (KEY, {"value_equals": b"other"}, "VALUE_MISMATCH"),
    "value-empty": (KEY, {"value_equals": b""}, "VALUE_MISMATCH"),
    "value-absent": (MISSING, {"value_equals": VALUE}, "KEY_NOT_FOUND"),
    "value-empty-absent": (MISSING, {"value_equals": b""}, "KEY_NOT_FOUND"),
}


@pytest.mark.parametrize("case", HOLDS)
def test_a_condition_that_holds(ledger: Ledger, place: Place, client: str, case: str) -> None:
    key, condition = HOLDS[case]
    assert ledger.commit(place, client, put(key, b"new", **condition), sequence=2).height == 2
    assert ledger.value(place, key) == b"new"


@pytest.mark.parametrize("case", FAILS)
def test_a_condition_that_fails(ledger: Ledger, place: Place, client: str, case: str) -> None:
    key, condition, code = FAILS[case]
    told = ledger.write(place, client, put("before", b"x"), put(key, b"new", **condition), sequence=2, key=new_key())
    check_failed(told, code, key)
    assert (ledger.height(place), ledger.last(place, client)) == (1, 1)
    assert ledger.value(place, "before") is None
    assert ledger.value(place, key) == (VALUE if key == KEY else None)


def test_an_empty_condition_is_none(ledger: Ledger, place: Place, client: str) -> None:
    operation = put(KEY, b"new")
    operation["setEntity"]["condition"] = {}
    ledger.commit(place, client, operation, sequence=2)
    assert ledger.value(place, KEY) == b"new"


def test_the_first_failing_operation_decides(ledger: Ledger, place: Place, client: str) -> None:
    told = ledger.write(
        place,
        client,
        put("fine", b"1", not_exists=True),
        put(KEY, b"2", version=7),
        put(MISSING, b"3", must_exists=True),
        sequence=2,
    )
    check_failed(told, "VERSION_MISMATCH", KEY)


def test_presence_is_judged_after_the_earlier_operations(ledger: Ledger, place: Place, client: str) -> None:
    ledger.commit(
        place,
        client,
        put("made", b"1", not_exists=True),
        put("made", b"2", must_exists=True),
        put("made", b"3", version=2),
        put("made", b"4", value_equals=b"3"),
        remove(KEY),
        put(KEY, b"again", not_exists=True),
        sequence=2,
    )
    assert (ledger.value(place, "made"), ledger.value(place, KEY)) == (b"4", b"again")
    told = ledger.write(place, client, remove("made"), put("made", b"5", must_exists=True), sequence=3)
    assert (told.code, told.error["key"]) == ("KEY_NOT_FOUND", "made")
    assert ledger.value(place, "made") == b"4"


def test_an_expired_entity_counts_as_absent(ledger: Ledger, place: Place, client: str) -> None:
    past, future = int(time.time()) - 10, int(time.time()) + 10_000
    ledger.commit(place, client, put("old", b"1", expires_at=past), put("young", b"1", expires_at=future), sequence=2)
    for condition in ({"must_exists": True}, {"version": 2}, {"value_equals": b"1"}):
        told = ledger.write(place, client, put("old", b"2", **condition), sequence=3)
        assert (told.code, "currentValue" in told.error) == ("KEY_NOT_FOUND", False), told
    assert ledger.write(place, client, put("young", b"2", not_exists=True), sequence=3).code == "KEY_EXISTS"
    ledger.commit(place, client, put("old", b"2", not_exists=True), sequence=3)
    assert ledger.value(place, "old") == b"2"


@pytest.mark.parametrize(("size", "is_told"), [(4_096, True), (4_097, False)], ids=["4096", "4097"])
def test_a_large_value_is_not_told(ledger: Ledger, place: Place, client: str, size: int, is_told: bool) -> None:
    value = b"v" * size
    ledger.commit(place, client, put("large", value), sequence=2)
    error = ledger.write(place, client, put("large", b"", not_exists=True), sequence=3).error
    assert error["currentVersion"] == "2", error
    assert error.get("currentValue") == (text(value) if is_told else None)


def test_a_failed_condition_remembers_nothing(ledger: Ledger, place: Place, client: str) -> None:
    """The same key and sequence are judged afresh, with the same payload or a corrected one."""
    key = new_key()
    wrong: list[Any] = [put(KEY, b"new", version=9)]
    for _ in range(2):
        assert ledger.write(place, client, *wrong, sequence=2, key=key).code == "VERSION_MISMATCH"
    told = ledger.commit(place, client, put(KEY, b"new", version=1), sequence=2, key=key)
    assert told.facts[1:] == (2, 2)
    again = ledger.write(place, client, put(KEY, b"new", version=1), sequence=2, key=key)
    ledger.check_replay(again, told)
    assert ledger.write(place, client, *wrong, sequence=2, key=key).code == "IDEMPOTENCY_KEY_REUSED"


def test_5_a_committed_write_replays_although_its_condition_would_fail_now(ledger: Ledger, place: Place) -> None:
    """And the same write under another identity fails and leaves everything as it was."""
    client, key = fresh("client"), new_key()
    operation = put("once", b"1", not_exists=True)
    first = ledger.commit(place, client, operation, sequence=1, key=key)
    for identity in ({"key": key}, {"sequence": 1}, {"sequence": 1, "key": key}):
        ledger.check_replay(ledger.write(place, client, operation, **identity), first)
    other = new_key()
    for identity in ({"key": other}, {"sequence": 2}, {"sequence": 2, "key": other}):
        assert ledger.write(place, client, operation, **identity).code == "KEY_EXISTS"
        assert (ledger.last(place, client), ledger.height(place)) == (1, 1)
    assert ledger.commit(place, client, put("twice", b"2"), key=other).sequence == 2
