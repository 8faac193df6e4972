"""Rows as large as may be, and pushes that touch many of them: what is refused, what it costs, what is loaded."""

from __future__ import annotations

from typing import Any

import pytest

from semel.kernel.errors import Refusal, Refused
from semel.kernel.hashes import json_text
from semel.store.protocol import AnyTable
from semel.store.table import Key
from semel.surfaces.deltas.commands import PushDeltas, flaws_of
from semel.surfaces.deltas.limits import FIRST_ROWS, MAX_COLUMNS, MAX_ROW_BYTES, MORE_ROWS, DeltaPolicy
from semel.surfaces.deltas.model import Delta, DeltaOp, DeltaReplica
from semel.surfaces.deltas.rules import rows as pushed_rows
from semel.surfaces.deltas.rules.last_writer_wins import RowState, dump_state, load_state
from semel.surfaces.deltas.rules.push import push_needs
from semel.surfaces.deltas.rules.rows import row_keys
from semel.surfaces.deltas.tables import (
    DELTA_ROW,
    DELTA_ROW_NUMBER,
    DeltaIdRow,
    DeltaRowNumberRow,
    DeltaRowRow,
    gateway_key,
)
from tests.deltas.rules.rig import BY_ORG, GATEWAY, Plain, Rig, change, scene

INSERT, UPDATE, DELETE = DeltaOp.INSERT, DeltaOp.UPDATE, DeltaOp.DELETE
REPLICA = DeltaReplica(GATEWAY, json_text("x"), "default")
LONG_NAME = "y" * 250
STATE_BYTES = 700
"""About what is stored of a row besides the values of two columns."""
SEVERAL = 2_000


async def refusal_of(rig: Rig, *deltas: Delta) -> Refusal:
    with pytest.raises(Refused) as refused:
        await rig.push(REPLICA, *deltas)
    return refused.value.refusal


# -- One row -----------------------------------------------------------------------------------------------------------


@scene
async def test_a_row_at_its_limit_can_be_deleted_by_anyone_and_made_anew(rig: Rig) -> None:
    x, y = Plain(rig, "x"), Plain(rig, LONG_NAME)
    half = "v" * ((MAX_ROW_BYTES - STATE_BYTES) // 2)
    await x.say(UPDATE, "r", a=half)
    await x.say(UPDATE, "r", b=half)
    refused = await refusal_of(rig, change(UPDATE, "r", "x", rig.stamp(), c="v" * STATE_BYTES))
    assert (refused.name, refused.status) == ("VALIDATION_ERROR", 413)
    assert [flaw.place for flaw in flaws_of(refused)] == [0]
    await y.say(DELETE, "r")
    await x.say(DELETE, "r")
    assert not await rig.rows()
    await x.say(INSERT, "r", fresh="w" * MAX_COLUMNS)
    assert await rig.rows() == {"r": {"fresh": "w" * MAX_COLUMNS}}


@scene
async def test_columns_of_former_lives_take_no_place(rig: Rig) -> None:
    x = Plain(rig, "x")
    for life in range(11):
        await x.say(INSERT, "r", **{f"c{life}_{number}": 1 for number in range(MAX_COLUMNS // 10)})
        await x.say(DELETE, "r")
    await x.say(INSERT, "r", last=1)
    assert await rig.rows() == {"r": {"last": 1}}
    state = await rig.state("r")
    assert len(state.gone) == MAX_COLUMNS
    assert not any(name.startswith("c0_") for name in state.gone)


@scene
async def test_a_row_has_so_many_columns_and_no_more(rig: Rig) -> None:
    x = Plain(rig, "x")
    await x.say(INSERT, "r", **{f"c{number}": number for number in range(MAX_COLUMNS)})
    fine, strange = change(UPDATE, "s", "x", rig.stamp(), a=1), change(UPDATE, "r", "x", rig.stamp(), strange=1)
    refused = await refusal_of(rig, fine, strange)
    assert refused.status == 413
    assert [flaw.place for flaw in flaws_of(refused)] == [1]
    assert list(await rig.rows()) == ["r"]


@pytest.mark.parametrize("has_rules", [False, True], ids=["no rules", "rules"])
@scene
async def test_a_row_is_read_and_written_once_a_push(
    rig: Rig, has_rules: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many deltas meet there, and however large it is."""
    if has_rules:
        await rig.save_rules(BY_ORG.replace(b"org", b"c1"))
    x = Plain(rig, "x")
    await x.say(INSERT, "r", **{f"c{number}": 1 for number in range(MAX_COLUMNS)})
    for number in range(SEVERAL):
        x.change(DELETE if number % 2 else UPDATE, "r")
    x.change(INSERT, "r", last=1)
    done = []

    def dumped(state: RowState) -> bytes:
        done.append("dumped")
        return dump_state(state)

    def loaded(row: str, stored: bytes) -> RowState:
        done.append("loaded")
        return load_state(row, stored)

    monkeypatch.setattr(pushed_rows, "dump_state", dumped)
    monkeypatch.setattr(pushed_rows, "load_state", loaded)
    answer = await x.push()
    assert (answer.accepted, answer.duplicates) == (SEVERAL + 1, 0)
    assert done == ["loaded", "dumped"]
    assert await rig.rows() == {"r": {"last": 1}}


# -- Many rows: what is loaded -----------------------------------------------------------------------------------------


class Shelf:
    """A view that remembers what was fetched from it; every row is as large as it is told."""

    def __init__(self, sizes: dict[Key, int], *known: DeltaIdRow) -> None:
        self.fetched: list[Key] = []
        self._sizes = sizes
        self._numbers = {key: number for number, key in enumerate(sizes) if sizes[key]}
        self._keys = {number: key for key, number in self._numbers.items()}
        self._known: dict[Key, DeltaIdRow] = {(row.gateway, row.hlc, row.id): row for row in known}
        self._loaded: set[tuple[AnyTable, Key]] = set()

    def get(self, table: AnyTable, key: Key) -> Any:
        """A row that has been loaded."""
        assert (table, key) in self._loaded, "what is looked at has been asked for"
        if table is DELTA_ROW_NUMBER:
            gateway, name, row = key
            return DeltaRowNumberRow(gateway, name, row, self._numbers[key]) if key in self._numbers else None
        if table is DELTA_ROW:
            gateway, name, number = key
            return DeltaRowRow(gateway, name, number, b'"r"', b"x" * self._sizes[self._keys[number]])
        return self._known.get(key)

    def play(self, deltas: tuple[Delta, ...]) -> None:
        """Load what a push needs."""
        needs = push_needs(PushDeltas(REPLICA, deltas), DeltaPolicy())
        stage = next(needs)
        while True:
            keys = list(stage.keys)
            assert not self._loaded & set(keys), "nothing is fetched twice"
            self._loaded |= set(keys)
            self.fetched += [self._keys[key[2]] for table, key in keys if table is DELTA_ROW]
            try:
                stage = needs.send(self)  # type: ignore[arg-type]
            except StopIteration:
                return

    @property
    def bytes(self) -> int:
        """Of all rows that were fetched."""
        return sum(self._sizes.get(key, 0) for key in self.fetched)


def deltas_of(count: int) -> tuple[Delta, ...]:
    return tuple(change(UPDATE, f"r{number}", "x", number, a=1) for number in range(count))


def keys_of(deltas: tuple[Delta, ...]) -> list[Key]:
    return row_keys(gateway_key(GATEWAY), deltas)


@pytest.mark.parametrize("size", [0, 300, 5_000])
def test_all_rows_are_loaded_that_fit(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    deltas = deltas_of(SEVERAL)
    monkeypatch.setattr(pushed_rows, "MAX_TOUCHED_BYTES", SEVERAL * size)
    shelf = Shelf(dict.fromkeys(keys_of(deltas), size))
    shelf.play(deltas)
    assert sorted(shelf.fetched) == (sorted(keys_of(deltas)) if size else [])


@pytest.mark.parametrize("size", [2_000, 40_000])
@pytest.mark.parametrize("small", [0, FIRST_ROWS], ids=["all alike", "behind small ones"])
def test_not_many_rows_are_loaded_beyond_what_fits(monkeypatch: pytest.MonkeyPatch, size: int, small: int) -> None:
    deltas = deltas_of(SEVERAL)
    bound = 100 * size
    monkeypatch.setattr(pushed_rows, "MAX_TOUCHED_BYTES", bound)
    shelf = Shelf(dict.fromkeys(keys_of(deltas)[small:], size))
    shelf.play(deltas)
    assert bound < shelf.bytes <= bound + MORE_ROWS * size


def test_the_first_few_rows_are_loaded_whatever_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    deltas = deltas_of(SEVERAL)
    monkeypatch.setattr(pushed_rows, "MAX_TOUCHED_BYTES", 1)
    shelf = Shelf(dict.fromkeys(keys_of(deltas), 1_000))
    shelf.play(deltas)
    assert shelf.fetched == keys_of(deltas)[:FIRST_ROWS]


def test_the_rows_of_deltas_that_are_known_are_not_loaded() -> None:
    deltas = deltas_of(SEVERAL)
    known = [DeltaIdRow(gateway_key(GATEWAY), delta.hlc, delta.id, delta.hlc) for delta in deltas[:-1]]
    shelf = Shelf(dict.fromkeys(keys_of(deltas), 1_000), *known)
    shelf.play(deltas)
    assert shelf.fetched == [keys_of(deltas)[-1]]


@scene
async def test_a_push_that_touches_too_much_is_refused_and_a_part_of_it_is_taken(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [f"r{number}" for number in range(FIRST_ROWS + 8)]
    x = Plain(rig, "x")
    for row in rows:
        x.change(INSERT, row, a="v" * 1_000)
    await x.push()
    before = await rig.gateway()
    monkeypatch.setattr(pushed_rows, "MAX_TOUCHED_BYTES", 20_000)
    deltas = [x.change(UPDATE, row, b=1) for row in rows]
    refused = await refusal_of(rig, *deltas)
    assert (refused.name, refused.status, flaws_of(refused)) == ("VALIDATION_ERROR", 413, ())
    assert await rig.gateway() == before
    await rig.push(REPLICA, *deltas[:8])
    assert (await rig.gateway()).deltas == before.deltas + 8
