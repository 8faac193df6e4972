"""Random histories of pushes, pulls, clocks and crashes against a plain model, and three clients that must end equal.

`make nightly NAME=model-deltas` runs as many as you like. The last tests show that the comparison finds what it
is there to find.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from semel.client.deltas.rows import Base, ReplicaCell, told
from semel.kernel.hlc import MAX_HLC
from semel.surfaces.deltas import reading
from semel.surfaces.deltas.model import Delta, DeltaCursor
from semel.surfaces.deltas.rules import last_writer_wins, rows
from semel.surfaces.deltas.rules.cursors import ReplicaProgress
from semel.surfaces.deltas.rules.last_writer_wins import DeltaStamp, RowChange, RowState
from semel.surfaces.deltas.rules.log import GatewayLog
from semel.surfaces.deltas.rules.visibility import DeltaEffect, effect_of
from tests.deltas.model.devices import Devices
from tests.deltas.model.fleet import Fleet
from tests.deltas.model.simulation import Simulation
from tests.harness.simulation import is_found_out, require_agreement, shrink

HISTORIES, SMALL_HISTORIES, RUNS = range(1, 31), range(31, 46), range(1, 61)
DEVICE_RUNS = range(1, 21)
SMALL = 3
DELETE = last_writer_wins._delete
WANTED = {
    *("INSERT", "UPDATE", "DELETE", "INSERT resolved", "UPDATE resolved", "DELETE resolved"),
    *("duplicates", "aliases", "partial pages", "CLOCK_DRIFT", "SCHEMA_ERROR"),
}


def test_every_answer_and_every_page_is_the_models() -> None:
    require_agreement(Simulation, HISTORIES, WANTED | {"crashes"})


def test_so_it_is_when_every_bound_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages that take several looks, and rows that may have few columns."""
    monkeypatch.setattr(reading, "SCANNED_ROWS", SMALL)
    monkeypatch.setattr(reading, "AT_ONCE", SMALL)
    monkeypatch.setattr(rows, "MAX_COLUMNS", SMALL)
    require_agreement(Simulation, SMALL_HISTORIES, ["VALIDATION_ERROR"], max_columns=SMALL)


@pytest.mark.parametrize("reuses_rows", [False, True], ids=["rows of their own", "rows that others make too"])
def test_three_clients_and_a_fresh_reader_end_with_the_same_rows(*, reuses_rows: bool) -> None:
    require_agreement(Fleet, RUNS, reuses_rows=reuses_rows)


@pytest.mark.parametrize(
    "options",
    [{}, {"reuses_rows": True}, {"reuses_rows": True, "cuts_log": True}, {"reuses_rows": True, "has_rules": True}],
    ids=lambda options: ", ".join(options) or "plain",
)
def test_g6_replicas_of_the_sdk_end_with_the_same_rows_whatever_is_lost(options: dict[str, Any]) -> None:
    wanted = {"checkpoints", "corrections", "heard", "own entries", "older copies", "crashes", "settled in part"}
    wanted |= {"cuts", "expired"} if "cuts_log" in options else set()
    require_agreement(Devices, DEVICE_RUNS, wanted, **options)


# -- The comparison itself ---------------------------------------------------------------------------------------------


def _as_it_was_pushed(delta: Delta, change: RowChange) -> DeltaEffect | None:
    effect = effect_of(delta, change)
    return None if effect is None else effect._replace(op=delta.op)


def _whole(delta: Delta, change: RowChange) -> DeltaEffect | None:
    effect = effect_of(delta, change)
    return None if effect is None else effect._replace(columns=None)


def _no_columns_that_are_gone(delta: Delta, change: RowChange) -> DeltaEffect | None:
    return effect_of(delta, change._replace(removed=()))


def _after_all(self: ReplicaProgress, tick: int, *, is_behind: bool) -> ReplicaProgress:
    return ReplicaProgress(tick, 0, self.aliases)


def _without_skipping(meaning: Callable[..., DeltaCursor], skip: int) -> Callable[..., DeltaCursor]:
    def other(self: ReplicaProgress, since: int, **how: Any) -> DeltaCursor:
        right = meaning(self, since, **how)
        return right._replace(skip=skip) if right.skip else right

    return other


def _without_the_rest(self: ReplicaProgress, shown: int, cursor: int, rest: DeltaCursor | None) -> ReplicaProgress:
    return self._replace(seen=max(self.seen, shown))


def _as_if_nothing_had_happened(self: ReplicaProgress, shown: int, high_water: int) -> ReplicaProgress:
    return self


def _delete_and_keep(state: RowState, stamp: DeltaStamp) -> RowChange:
    cells = dict(state.cells)
    change = DELETE(state, stamp)
    state.cells.update(cells)
    return change


def _clock_alone(self: GatewayLog, now_ms: int, *, is_behind: bool) -> int:
    self.high_water = max(self.high_water, now_ms << 16)
    return self.high_water


BREAKAGES: dict[str, tuple[str, Any]] = {
    "authors are compared as texts": (
        "semel.surfaces.deltas.rules.last_writer_wins._code_units",
        lambda text: text.encode(),
    ),
    "authors are compared by code points": ("semel.surfaces.deltas.rules.last_writer_wins._code_units", json.loads),
    "the later arrival wins a tie": (
        "semel.surfaces.deltas.rules.last_writer_wins.is_after",
        lambda one, other: other is None or one.hlc >= other.hlc,
    ),
    "columns outlive their row": ("semel.surfaces.deltas.rules.last_writer_wins._delete", _delete_and_keep),
    "entries keep their operation": ("semel.surfaces.deltas.rules.log.effect_of", _as_it_was_pushed),
    "entries keep their columns": ("semel.surfaces.deltas.rules.log.effect_of", _whole),
    "columns that are gone are not told": ("semel.surfaces.deltas.rules.log.effect_of", _no_columns_that_are_gone),
    "nobody is repaired": ("semel.surfaces.deltas.rules.push.repair_all", lambda *_: None),
    "one author is remembered": ("semel.surfaces.deltas.rules.last_writer_wins._REMEMBERED", 1),
    "a push passes over what is outstanding": (
        "semel.surfaces.deltas.rules.cursors.ReplicaProgress.pushed",
        _after_all,
    ),
    "own entries are told again": (
        "semel.surfaces.deltas.rules.cursors.ReplicaProgress.meaning",
        _without_skipping(ReplicaProgress.meaning, 0),
    ),
    "own entries are never told again": (
        "semel.surfaces.deltas.rules.cursors.ReplicaProgress.meaning",
        _without_skipping(ReplicaProgress.meaning, MAX_HLC),
    ),
    "the rest of a page means itself": ("semel.surfaces.deltas.rules.cursors.ReplicaProgress.noted", _without_the_rest),
    "nobody goes back": ("semel.surfaces.deltas.rules.cursors.ReplicaProgress.gone_back", _as_if_nothing_had_happened),
    "one number stands for two things": (
        "semel.surfaces.deltas.rules.cursors.ReplicaProgress.is_alias",
        lambda self, number: False,
    ),
    "two pushes are given one number": ("semel.surfaces.deltas.rules.log.GatewayLog.tick", _clock_alone),
    "the clock may be ahead by less": (
        "semel.surfaces.deltas.rules.push.drift_ms",
        lambda hlc, now: max(0, (hlc >> 16) - now - 4_999),
    ),
    "columns are not looked up": ("semel.surfaces.deltas.rules.push._schema_flaws", lambda *_: []),
}


@pytest.mark.parametrize("breakage", BREAKAGES.values(), ids=BREAKAGES)
def test_rules_that_are_wrong_are_found_out(monkeypatch: pytest.MonkeyPatch, breakage: tuple[str, Any]) -> None:
    monkeypatch.setattr(*breakage)
    assert is_found_out(Simulation, HISTORIES)


def _unplaced(base: Base) -> dict[str, ReplicaCell]:
    return {name: cell._replace(at=0) for name, cell in base.cells.items()}


def _ignore(self: Any, value: Any) -> None:
    """Keep nothing."""


DEVICE_BREAKAGES: dict[str, tuple[str, Any]] = {
    "entries count as they come": (
        "semel.client.deltas.replica.told",
        lambda base, change, at: told(base._replace(live_at=0, bare_at=0, cells=_unplaced(base)), change, at),
    ),
    "a write that lost is not told": ("semel.surfaces.deltas.plain_dialect._correction", lambda *_: None),
    "a push passes over what others did": (
        "semel.surfaces.deltas.plain_dialect._moved",
        lambda reading, gateway, client, cursor: gateway.high_water,
    ),
    "own entries are never told": ("semel.client.deltas.state.LocalProgress.own_after", property(lambda _: 0, _ignore)),
}


@pytest.mark.parametrize("breakage", DEVICE_BREAKAGES.values(), ids=DEVICE_BREAKAGES)
def test_g6_replicas_that_are_wrong_are_found_out(monkeypatch: pytest.MonkeyPatch, breakage: tuple[str, Any]) -> None:
    monkeypatch.setattr(*breakage, raising=False)
    assert is_found_out(Devices, DEVICE_RUNS, reuses_rows=True)


def test_a_failing_history_is_made_short() -> None:
    tried: list[list[int]] = []

    def fails(some: Sequence[int]) -> bool:
        tried.append(list(some))
        return {3, 41, 77} <= set(some)

    assert shrink(range(100), fails) == [3, 41, 77]
    assert len(tried) < 100
