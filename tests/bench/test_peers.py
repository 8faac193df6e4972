"""The kill schedule of `make bench WHAT=peers`, at the point that tells the candidates apart: right behind COMMIT."""

from __future__ import annotations

import sys
from pathlib import Path

from bench.peers import Outcome, schedule, stage_of, table
from bench.peers_app import POINTS
from bench.peers_candidates import BUILDERS, IDEMKIT, JOINED, MIDDLEWARE, TRANSACTION
from tests.once.conftest import fresh_schema

POINT = "committed"
EXPECTED = {
    TRANSACTION: Outcome(1, 1, "answered"),
    MIDDLEWARE: Outcome(1, 1, "unknown"),
    JOINED: Outcome(1, 1, "answered"),
    IDEMKIT: Outcome(2, 2, "answered"),
}


def test_a_request_killed_behind_its_commit_is_charged_once_by_semel_and_twice_by_a_middleware_alone() -> None:
    candidates = list(EXPECTED)
    with stage_of(sys.executable, candidates, fresh_schema()) as stage:
        found = schedule(stage, candidates, [POINT])
    assert found == {(candidate, POINT): outcome for candidate, outcome in EXPECTED.items()}
    rows = list(table(found, candidates, [POINT]))[2:]
    assert rows[1] == f"| {MIDDLEWARE} | 1 / 1, unknown | 0 | 1 |"
    assert rows[3] == f"| {IDEMKIT} | **2** / 2 | 1 | 0 |"


def test_the_page_of_the_comparison_has_a_row_for_each_candidate_and_a_column_for_each_point() -> None:
    page = (Path(__file__).parent.parent.parent / "docs/once/comparison.md").read_text("utf-8")
    head, line, *rows = table({}, list(BUILDERS), POINTS)
    _, found, told = page.partition(f"{head}\n{line}\n")
    assert found
    names = [row.split(" | ")[0] for row in told.partition("\n\n")[0].splitlines()]
    assert names == [row.split(" | ")[0] for row in rows]
