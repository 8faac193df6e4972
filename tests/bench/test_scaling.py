"""The simulation of locks and commits: deterministic, right where arithmetic tells, and near what was measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.namespaces import ALONE, APART, OVERLAPPING, SERIAL, SHARED, LoadPoint, medians
from bench.scaling import PICTURE, POINTS, compared, curves, picture, table
from bench.simulation import Deployment, simulate

PLAIN = Deployment(1, 1, 16, batch_us=2_000, batch_cpu_us=500, write_cpu_us=50, sync_us=1_000, cores=64)
PAGE = Path(__file__).parents[2] / "docs/operating/scaling.md"


def test_one_seed_gives_one_result() -> None:
    assert simulate(PLAIN, seed=7) == simulate(PLAIN, seed=7)
    assert simulate(PLAIN, seed=7) != simulate(PLAIN, seed=8)


def test_one_node_is_the_batch_divided_by_its_time() -> None:
    got = simulate(PLAIN)
    cycle_us = 2_000 + 500 + 8 * 50 / 2 + 1_000
    assert got.writes_a_commit == pytest.approx(8, rel=0.05), "half of the callers write while the other half commits"
    assert got.per_second == pytest.approx(8 * 1_000_000 / cycle_us, rel=0.05)


def test_nodes_of_one_namespace_take_turns_and_others_do_not() -> None:
    two, eight = (simulate(PLAIN._replace(nodes=nodes)) for nodes in (2, 8))
    assert eight.per_second == pytest.approx(two.per_second, rel=0.03), "more nodes on one lock bring nothing"
    assert two.lock_share > 0.99
    apart = simulate(PLAIN._replace(nodes=8, namespaces=8, delay_us=1))
    assert apart.per_second > 6 * simulate(PLAIN).per_second


def test_a_sync_is_shared_by_those_that_wait_for_it() -> None:
    slow = PLAIN._replace(sync_us=20_000, batch_us=100)
    rates = [simulate(slow._replace(nodes=nodes, namespaces=nodes)).per_second for nodes in (1, 2, 8)]
    assert rates[1] < 1.5 * rates[0], "two take turns at the disk"
    assert rates[2] > 3 * rates[0], "of eight, those that wait are synced together"


def test_cores_bind_when_there_are_few() -> None:
    busy = PLAIN._replace(nodes=8, namespaces=8, write_cpu_us=400)
    few, many = (simulate(busy._replace(cores=cores)) for cores in (1, 16))
    assert few.core_share > 0.98
    assert many.per_second > 4 * few.per_second


def test_the_simulation_is_near_the_measured_points() -> None:
    found = list(compared(json.loads(POINTS.read_text())))
    assert {(one.delay, one.arrangement) for one in found} == {
        (delay, place) for delay in (OVERLAPPING, SERIAL) for place in (SHARED, APART)
    }
    assert [one for one in found if not one.is_close] == []


def test_the_page_has_what_the_simulation_and_the_measurement_say() -> None:
    some, page = curves(), PAGE.read_text()
    assert PICTURE.read_text() == picture(some)
    for line in table(some):
        assert line in page
    for row in json.loads(POINTS.read_text())["rows"]:
        assert "| " + " | ".join(str(value) for value in row.values()) + " |" in page


def test_ratios_are_those_within_a_round() -> None:
    rounds = [
        [LoadPoint(SERIAL, "job", place, rate * quick, 4.0, 1.0) for place, rate in rates.items()]
        for quick, rates in (
            (1.0, {ALONE: 100, SHARED: 120, APART: 180}),
            (9.0, {ALONE: 100, SHARED: 110, APART: 200}),
            (2.0, {ALONE: 100, SHARED: 130, APART: 190}),
        )
    ]
    rows = {row["arrangement"]: row for row in medians(rounds)}
    assert (rows[SHARED]["of_one_node"], rows[APART]["of_one_node"]) == (1.2, 1.9)
    assert rows[APART]["of_one_namespace"] == 1.5
