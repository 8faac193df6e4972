"""Every surface keeps the law of the event loop: some of the worst requests of each; a planted hold is seen."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from bench.loop_law import BEGIN, CASES, END, PAGE
from tests.law.case import Case
from tests.law.rig import HOLD_MS, watched

QUICK = [case for case in CASES if case.is_quick]


@pytest.mark.parametrize("case", QUICK, ids=[case.name for case in QUICK])
def test_a3_a_worst_request_within_the_limits_keeps_the_law(case: Case, tmp_path: Path) -> None:
    with watched(tmp_path) as server:
        request = case.make(server)
        sizes: list[int] = []
        cost = server.cost_of(lambda: sizes.append(request()))
    assert cost.hold_ms < HOLD_MS
    assert cost.memory_bytes < cost.allowed_bytes(sizes[0])


def test_a3_every_surface_and_wire_is_measured() -> None:
    wires = ["streams", "events, WebSocket", "events, HTTP", "jobs", "ledger, HTTP", "ledger, gRPC"]
    wires += ["deltas, HTTP", "deltas, WebSocket"]
    assert {case.surface for case in CASES} == set(wires)
    assert {case.surface for case in QUICK} == set(wires)


def test_a3_the_table_of_the_docs_has_every_case() -> None:
    rows = [row.split(" | ") for row in table()]
    told = {f"{surface.removeprefix('| ')}: {limit}, {shape}" for surface, limit, shape, *_ in rows}
    assert told == {case.name for case in CASES}


def test_a3_a_planted_hold_of_the_loop_is_seen(tmp_path: Path) -> None:
    with watched(tmp_path, STORE="memory:") as server:
        idle = server.cost_of(lambda: httpx.get(f"{server.url}/livez").raise_for_status())
        held = server.cost_of(server.plant_hold)
    assert idle.hold_ms < HOLD_MS < held.hold_ms


def table() -> list[str]:
    """The lines that were measured."""
    lines = PAGE.read_text().partition(BEGIN)[2].partition(END)[0].splitlines()
    return [line for line in lines if line.startswith("|")][2:]
