"""Values above 4096 bytes stand in rows of their own, and nobody who looks from outside can tell."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest

from semel.engine.reading import Reading
from semel.surfaces.ledger import pagination, proofs, reading
from semel.surfaces.ledger.commands import WriteCommitted, WriteDeclined, WriteErrorCode
from semel.surfaces.ledger.limits import MAX_TOLD_VALUE_BYTES
from semel.surfaces.ledger.model import ConditionKind, DeleteEntity, LedgerPlace, Operation, SetCondition, SetEntity
from semel.surfaces.ledger.tables import INLINE_BYTES, LEDGER_ENTITY, LEDGER_PAST, LEDGER_VALUE
from tests.ledger.model import hashing
from tests.ledger.model.replay import differing, dump, log_of, replay
from tests.ledger.rules.rig import OWN, LedgerDesk

LARGEST_INLINE, LARGE = b"i" * INLINE_BYTES, b"l" * (INLINE_BYTES + 1)
HUGE = b"h" * 100_000
SIZES = {"inline": LARGEST_INLINE, "large": LARGE, "huge": HUGE}
MANY = 1_000


def value_is(value: bytes) -> SetCondition:
    return SetCondition(ConditionKind.VALUE, value=value)


def put(key: bytes, value: bytes, condition: SetCondition | None = None) -> SetEntity:
    return SetEntity(key, value, condition=condition)


def test_the_boundary() -> None:
    """At 4096 bytes a value stands in the entity's row, above it its hash does; told values end at the same size."""
    assert INLINE_BYTES == MAX_TOLD_VALUE_BYTES == len(LARGEST_INLINE) == 4_096
    desk = LedgerDesk()
    desk.commit(OWN, put(b"inline", LARGEST_INLINE), put(b"large", LARGE))
    inline, large = desk.rows(LEDGER_ENTITY)
    assert (inline.value, inline.size) == (LARGEST_INLINE, 4_096)
    assert (large.value, large.size) == (sha256(LARGE).digest(), 4_097)
    assert desk.rows(LEDGER_VALUE) == [(*OWN, 1, b"large", LARGE)]


def test_a_value_that_is_the_hash_of_a_large_one_is_not_taken_for_it() -> None:
    desk = LedgerDesk()
    desk.commit(OWN, put(b"k", LARGE))
    digest = sha256(LARGE).digest()
    assert desk.write(OWN, put(b"k", b"", value_is(digest))).code is WriteErrorCode.VALUE_MISMATCH
    desk.commit(OWN, put(b"k", digest))
    assert desk.write(OWN, put(b"k", b"", value_is(LARGE))).code is WriteErrorCode.VALUE_MISMATCH
    assert desk.look(lambda look: reading.read_entity(look, OWN, b"k", None)).entity == (b"k", digest, 0, 2)
    desk.commit(OWN, put(b"k", LARGE, value_is(digest)))


# -- conditions -------------------------------------------------------------------------------------------------------

BEFORE: dict[str, tuple[Operation, ...]] = {
    "alone": (),
    "behind another key": (put(b"other", HUGE),),
    "behind a deletion": (DeleteEntity(b"other"),),
}


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("size", SIZES)
def test_a_condition_on_the_value(size: str, before: str) -> None:
    desk, value = LedgerDesk(), SIZES[size]
    desk.commit(OWN, put(b"k", value), put(b"other", LARGE))
    same_length = value[:-1] + b"?"
    for wrong in (same_length, value + b"l", value[:-1], b"", sha256(value).digest()):
        declined = desk.write(OWN, *BEFORE[before], put(b"k", b"new", value_is(wrong)))
        assert (declined.code, declined.key, declined.current_version) == (WriteErrorCode.VALUE_MISMATCH, b"k", 1)
    assert len(desk.states[OWN]) == 2
    desk.commit(OWN, *BEFORE[before], put(b"k", same_length, value_is(value)))
    desk.commit(OWN, *BEFORE[before], put(b"k", b"small", value_is(same_length)))
    desk.commit(OWN, *BEFORE[before], put(b"k", value, value_is(b"small")))


@pytest.mark.parametrize("size", SIZES)
def test_a_condition_on_a_value_that_the_same_transaction_has_set(size: str) -> None:
    desk, value = LedgerDesk(), SIZES[size]
    desk.commit(OWN, put(b"k", HUGE[::-1] + b"!"))
    for wrong in (value[:-1] + b"?", value + b"l", HUGE[::-1] + b"!"):
        declined = desk.write(OWN, put(b"k", value), put(b"k", b"new", value_is(wrong)))
        assert (declined.code, declined.current_version) == (WriteErrorCode.VALUE_MISMATCH, 2)
    desk.commit(OWN, put(b"k", value), put(b"k", LARGE, value_is(value)), put(b"k", HUGE, value_is(LARGE)))
    assert [row.value for row in desk.rows(LEDGER_VALUE) if row.version == 2] == [HUGE]
    gone = desk.write(OWN, DeleteEntity(b"k"), put(b"k", b"new", value_is(HUGE)))
    assert gone.code is WriteErrorCode.KEY_NOT_FOUND


FAILING = {
    WriteErrorCode.KEY_EXISTS: SetCondition(ConditionKind.NOT_EXISTS),
    WriteErrorCode.VERSION_MISMATCH: SetCondition(ConditionKind.VERSION, 7),
    WriteErrorCode.VALUE_MISMATCH: value_is(b"something else"),
}


@pytest.mark.parametrize("is_own", [False, True], ids=["stored before", "set by the same transaction"])
@pytest.mark.parametrize("code", FAILING, ids=[code.name for code in FAILING])
def test_a_failed_condition_tells_the_value_up_to_a_size(code: WriteErrorCode, is_own: bool) -> None:
    for value, told in ((b"", b""), (LARGEST_INLINE, LARGEST_INLINE), (LARGE, None), (HUGE, None)):
        desk = LedgerDesk()
        first = put(b"k", value)
        failing = put(b"k", b"new", FAILING[code])
        if not is_own:
            desk.commit(OWN, first)
        declined = desk.write(OWN, *((first, failing) if is_own else (failing,)))
        assert isinstance(declined, WriteDeclined)
        assert (declined.code, declined.current_version, declined.current_value) == (code, 1, told)


# -- reading ----------------------------------------------------------------------------------------------------------

HISTORY: tuple[tuple[Operation, ...], ...] = (
    (put(b"a", LARGE), put(b"b", b"small")),
    (put(b"a", LARGEST_INLINE), put(b"b", HUGE)),
    (put(b"a", HUGE), put(b"c", LARGE)),
    (DeleteEntity(b"a"), put(b"b", LARGE), put(b"c", LARGE)),
    (put(b"a", LARGE), DeleteEntity(b"b"), DeleteEntity(b"c"), put(b"c", HUGE)),
    (put(b"d", b""),),
)
KEYS = (b"a", b"b", b"c", b"d", b"nothing")


def check_height(desk: LedgerDesk, place: LedgerPlace, asked: int | None, height: int) -> None:
    """Reads, proofs and lists tell what was there."""
    state = desk.states[place][height]

    def look(read: Reading) -> None:
        root = hashing.state_root(state.values())
        for key in KEYS:
            assert reading.read_entity(read, place, key, asked) == (state.get(key), height)
            proved = proofs.prove_entity(read, place, key, asked)
            assert (proved.entity, proved.proof.entity) == (state.get(key), state.get(key))
            assert (proved.header.height, proved.header.state_root) == (height, root)
            assert hashing.proof_fault(proved.proof, root) == ""
        page = pagination.list_entities(read, place, b"", asked, False, 10, "")
        assert list(page.items) == [state[key] for key in sorted(state)]

    desk.look(look)


def test_every_height_tells_its_own_values() -> None:
    desk = LedgerDesk()
    place = desk.make_vault(9)
    for operations in HISTORY:
        desk.commit(place, *operations)
        for height in range(1, len(desk.states[place])):
            check_height(desk, place, height, height)
        check_height(desk, place, None, len(desk.states[place]) - 1)


# -- what is moved ----------------------------------------------------------------------------------------------------


def loaded(desk: LedgerDesk) -> set[Any]:
    """The tables that batches have loaded rows of."""
    return {table for keys, _ in desk.inside.store.loads for table in keys} | {
        wanted.table for _, ranges in desk.inside.store.loads for wanted in ranges
    }


@pytest.mark.parametrize("way", ["delete", "replace"])
def test_what_takes_the_place_of_large_values_does_not_load_them(way: str) -> None:
    desk = LedgerDesk()
    place = desk.make_vault(9, retain=3)
    names = [b"k%d" % number for number in range(MANY)]
    desk.commit(place, *[put(name, LARGE) for name in names])
    desk.inside.store.loads.clear()
    desk.inside.store.flushes.clear()
    desk.commit(place, *[DeleteEntity(name) if way == "delete" else put(name, b"", value_is(LARGE)) for name in names])
    assert LEDGER_ENTITY in loaded(desk)
    assert LEDGER_VALUE not in loaded(desk)
    [changes] = desk.inside.store.flushes
    assert LEDGER_VALUE not in {*changes.inserts, *changes.updates, *changes.steady, *changes.deletes}
    assert len(changes.inserts[LEDGER_PAST]) == MANY
    assert sum(len(row.value) for row in changes.inserts[LEDGER_PAST]) == 32 * MANY


def test_a_transaction_that_is_declined_loads_none() -> None:
    desk = LedgerDesk()
    desk.commit(OWN, put(b"k", HUGE))
    desk.inside.store.loads.clear()
    for condition in FAILING.values():
        assert isinstance(desk.write(OWN, put(b"k", b"", condition)), WriteDeclined)
    assert LEDGER_VALUE not in loaded(desk)


# -- again from the log -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 4, 1_000], ids=["one by one", "by fours", "all at once"])
def test_the_log_makes_the_same_rows_again(size: int) -> None:
    """Large values included, in batches of any size, in places that keep all bodies and in places that do not."""
    desk = LedgerDesk()
    places = (OWN, desk.make_vault(9), desk.make_vault(10, retain=2))
    for operations in HISTORY:
        for place in places:
            assert isinstance(desk.write(place, *operations), WriteCommitted)
    assert {(row.vault, row.version, row.key) for row in desk.rows(LEDGER_VALUE)} == {
        (place.vault, one.version, key)
        for place in places
        for state in desk.states[place]
        for key, one in state.items()
        if len(one.value) > INLINE_BYTES
    }
    again = replay(log_of(desk.memory), desk.ledger.policy, size, 1)
    assert differing(dump(desk.memory), dump(again)) == []
