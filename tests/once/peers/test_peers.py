"""The kill schedule at the point that tells the candidates apart: right behind COMMIT."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.once.conftest import fresh_schema
from tests.once.peers import __main__ as peers
from tests.once.peers.__main__ import Outcome, newest_run, schedule, stage_of, table, write
from tests.once.peers.app import POINTS
from tests.once.peers.candidates import BUILDERS, IDEMKIT, JOINED, MIDDLEWARE, RESTATE, TRANSACTION

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
    assert rows[1] == f"| {MIDDLEWARE} | 0 | 1 | 1 / 1, unknown |"
    assert rows[3] == f"| {IDEMKIT} | 1 | 0 | **2** / 2 |"


def test_the_committed_run_has_every_candidate_at_every_point() -> None:
    about, found = newest_run()
    missing = {(candidate, point) for candidate in BUILDERS for point in POINTS} - set(found)
    assert missing == {(RESTATE, "sending")}
    assert {"date", "machine", "versions"} <= set(about)


def test_a_run_is_read_as_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "RESULTS", tmp_path)
    found = {(candidate, POINT): outcome for candidate, outcome in EXPECTED.items()}
    write(found, "packages 1.0")
    about, again = newest_run()
    assert again == found
    assert about["versions"] == "packages 1.0"
