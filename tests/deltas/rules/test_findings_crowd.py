"""Random clients that must end equal, seed after seed; and that the comparison finds what it is there to find.

`make nightly NAME=model-deltas` runs as many as you like.
"""

from __future__ import annotations

from typing import Any

import pytest

from semel.surfaces.deltas import reading
from semel.surfaces.deltas.model import DeltaCursor
from semel.surfaces.deltas.rules import repairs, visibility
from semel.surfaces.deltas.rules.cursors import ReplicaProgress
from tests.deltas.rules.crowd import Crowd
from tests.harness.simulation import is_found_out, require_agreement

SEEDS = range(1, 121)
FEW = 2
"""Of whatever is bounded, in a run where every bound is near."""


@pytest.mark.parametrize("has_rules", [False, True], ids=["the same rows made by all", "rows that change hands"])
def test_all_hold_the_same_in_the_end(has_rules: bool) -> None:
    require_agreement(Crowd, SEEDS, ["entries"], has_rules=has_rules)


@pytest.mark.parametrize("has_rules", [False, True], ids=["the same rows made by all", "rows that change hands"])
def test_so_they_do_when_every_bound_is_near(monkeypatch: pytest.MonkeyPatch, has_rules: bool) -> None:
    """Pages take several looks, and a row forgets whom it had to repair."""
    monkeypatch.setattr(reading, "SCANNED_ROWS", FEW)
    monkeypatch.setattr(reading, "AT_ONCE", FEW)
    for module in (repairs, visibility):
        monkeypatch.setattr(module, "KEPT_AIDS", FEW, raising=False)
    require_agreement(Crowd, SEEDS[: len(SEEDS) // 3], ["entries"], has_rules=has_rules)


_MEANING, _NOTED = ReplicaProgress.meaning, reading._noted


def _without_doubt(self: ReplicaProgress, since: int, *, is_entry: bool) -> DeltaCursor:
    return _MEANING(self, since, is_entry=is_entry)._replace(doubt=0)


def _shown_when_it_leaves(
    asker: Any, page: reading.DeltaPage, begun: reading.PartialPage, *others: Any
) -> reading.DeltaPage:
    return _NOTED(asker, page, begun._replace(shown=page.cursor), *others)


BREAKAGES: dict[str, tuple[bool, str, Any]] = {
    # name: whether there are rules, what is broken, and what stands there instead
    "a row that was told and not shown comes twice": (
        False,
        "semel.surfaces.deltas.rules.cursors.ReplicaProgress.meaning",
        _without_doubt,
    ),
    "a page counts as shown when it leaves": (False, "semel.surfaces.deltas.reading._noted", _shown_when_it_leaves),
    "a former life is no news": (
        False,
        "semel.surfaces.deltas.reading._is_known",
        lambda row, start: row.position <= max(start.mute, start.skip),
    ),
    "nobody is repaired": (False, "semel.surfaces.deltas.rules.push.repair_all", lambda *_: None),
    "own rows stay in view": (True, "semel.surfaces.deltas.rules.visibility.CallerView.left", lambda *_: ()),
    "rows do not come into view": (True, "semel.surfaces.deltas.rules.visibility.CallerView._entered", lambda *_: None),
}


@pytest.mark.parametrize("breakage", BREAKAGES.values(), ids=BREAKAGES)
def test_rules_that_are_wrong_are_found_out(monkeypatch: pytest.MonkeyPatch, breakage: tuple[bool, str, Any]) -> None:
    has_rules, *broken = breakage
    monkeypatch.setattr(*broken)
    assert is_found_out(Crowd, SEEDS, has_rules=has_rules)
