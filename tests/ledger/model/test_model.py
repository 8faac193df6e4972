"""Random requests, settings, clocks, sweeps and crashes against a plain model of what the ledger promises.

`make nightly NAME=model-ledger` runs as many seeds as you like. The last tests show that the comparison finds
what it is there to find.
"""

from __future__ import annotations

from typing import Any

import pytest

from semel.kernel.clock import Now
from semel.surfaces.ledger.rules import idempotency
from semel.surfaces.ledger.rules.group_rows import next_cuts
from semel.surfaces.ledger.rules.state_tree import leaf_hash
from semel.surfaces.ledger.tables import OrgRow
from tests.harness.simulation import is_found_out, require_agreement
from tests.ledger.model.simulation import Simulation

SEEDS = range(1, 15)
AT_THE_DOOR = {"R0a", "R0b", "R0c"}
"""Rows that no request of the simulation comes to: it is refused before, or nobody can live so long."""
CONDITIONS = {"KEY_EXISTS", "KEY_NOT_FOUND", "VERSION_MISMATCH", "VALUE_MISMATCH"}
REFUSALS = {
    *("invalid_argument", "permission_denied", "organization_not_found", "vault_not_found"),
    *("failed_precondition", "resource_exhausted"),
}
ROWS = [rule.row for rule in idempotency.RULES if rule.row not in AT_THE_DOOR]
GREEDY = tuple(
    rule._replace(applies=lambda case: not case.is_old) if rule.row == "R6" else rule for rule in idempotency.RULES
)
"""A table whose R6 takes every sequence that is new."""


def test_every_answer_and_every_hash_is_the_models() -> None:
    require_agreement(Simulation, SEEDS, {*ROWS, *CONDITIONS, *REFUSALS, "evicted", "forgotten", "expired", "crashes"})


# -- The comparison itself ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", [row for row in ROWS if row != "R6"])
def test_a_table_without_a_row_is_found_out(monkeypatch: pytest.MonkeyPatch, row: str) -> None:
    monkeypatch.setattr(idempotency, "RULES", tuple(rule for rule in idempotency.RULES if rule.row != row))
    assert is_found_out(Simulation, SEEDS)


Cuts = tuple[int, int]


def _cut_a_second_late(org: OrgRow, entries: int, seconds: int, cuts: Cuts) -> Cuts:
    """Exactly the time to live is one second too much."""
    moved = next_cuts(org, entries, seconds, cuts)
    return moved if moved == cuts else (moved[0] + 1, moved[1] + 1)


def _cut_that_falls(org: OrgRow) -> OrgRow:
    if org.entries % org.interval:
        return org
    cut = org.at_seconds - org.ttl_seconds
    return org._replace(cut=cut, client_cut=org.client_cut if org.fence else cut)


def _falling_time(before: tuple[int, int], now: Now) -> tuple[int, int]:
    seconds, milliseconds = divmod(now.expiry_ms, 1_000)
    return seconds, milliseconds * 1_000_000


def _without_fence(org: OrgRow, entries: int, seconds: int, cuts: Cuts) -> Cuts:
    return next_cuts(org._replace(fence=0), entries, seconds, cuts)


BREAKAGES: dict[str, tuple[str, Any]] = {
    "gaps are left": ("semel.surfaces.ledger.rules.idempotency.RULES", GREEDY),
    "a second too early": ("semel.surfaces.ledger.rules.group_rows.next_cuts", _cut_a_second_late),
    "what was forgotten returns": ("semel.surfaces.ledger.rules.organizations.advance_cuts", _cut_that_falls),
    "the fence does not hold": ("semel.surfaces.ledger.rules.group_rows.next_cuts", _without_fence),
    "nothing is evicted": ("semel.surfaces.ledger.rules.group_rows.next_cuts", lambda *given: given[3]),
    "changes are no trigger": ("semel.surfaces.ledger.rules.organizations.advance_cuts", lambda org: org),
    "time falls with the clock": ("semel.surfaces.ledger.rules.group_rows.next_time", _falling_time),
    "no client is ever gone": ("semel.surfaces.ledger.rules.commits.unless_evicted", lambda org, stream: stream),
    "a client that returns has its old life": (
        "semel.surfaces.ledger.rules.commits.unless_evicted",
        lambda org, stream: stream,
    ),
    "every commit is remembered": ("semel.surfaces.ledger.rules.commits.is_in_window", lambda *_: True),
    "the last commit is forgotten too": (
        "semel.surfaces.ledger.rules.commits.is_in_window",
        lambda org, stream, commit: commit.at_seconds >= org.cut,
    ),
    "bodies are never compacted": ("semel.surfaces.ledger.rules.commits.is_compacted", lambda *_: False),
    "bodies are not looked up": ("semel.surfaces.ledger.rules.commits.is_compacted", lambda *_: True),
    "the expired are there": ("semel.surfaces.ledger.rules.state.is_expired", lambda *_: False),
    "the rate is not counted": ("semel.surfaces.ledger.rules.write._in_second", lambda org, now: 0),
    "read only is no obstacle": ("semel.surfaces.ledger.rules.write.refuse_write", lambda org, place: None),
    "bodies are freed before their time": ("semel.surfaces.ledger.rules.maintenance.is_compacted", lambda *_: True),
    "last commits are freed": ("semel.surfaces.ledger.rules.maintenance.unless_evicted", lambda *_: None),
    "last commits are not released": ("semel.surfaces.ledger.rules.commits.release_last", lambda *_: None),
    "the root leaves out the time of expiry": (
        "semel.surfaces.ledger.rules.state_tree.leaf_hash",
        lambda entity: leaf_hash(entity._replace(expires_at=0)),
    ),
}


@pytest.mark.parametrize("breakage", BREAKAGES.values(), ids=BREAKAGES)
def test_rules_that_are_wrong_are_found_out(monkeypatch: pytest.MonkeyPatch, breakage: tuple[str, Any]) -> None:
    monkeypatch.setattr(*breakage)
    assert is_found_out(Simulation, SEEDS)
