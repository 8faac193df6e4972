"""The candidates, ratios and tables of `make bench`, without measuring anything."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench import load_reads
from bench.__main__ import MEASUREMENTS
from bench.load import options
from bench.suite import report
from bench.suite.candidates import CANDIDATES, Ask, generator
from bench.suite.driver import Seen, others_busy
from bench.suite.measures import APPEND_RANDOM, GROUPS, LEDGER_SINGLE, MEASURES, READS, Measure, Point
from bench.suite.results import Record, by_point, times, typical
from bench.suite.run import chosen, is_too_late, passes
from bench.suite.servers import Clusters, Place, Served, Tools, cpu_ns, delay_environment, slow_library

PAGE = Path(__file__).parents[2] / "docs/internals/testing.md"
PLACE = Place(Path(), 0.0, Tools("python", "node", "redis", "nats"), Clusters())
ABOUT = {
    "date": "2026-11-17T10:00:00+00:00",
    "commit": "abc1234",
    "rounds": 3,
    "seconds": 2.0,
    "pinned": {"load": 1, "servers": [0]},
    "machine": {
        "cpus": 2,
        "cpu": "some",
        "python": "3.11.7",
        "load_average": 1.0,
        "sync_p50_ms": 0.5,
        "sync_p99_ms": 2.0,
    },
}


def record(candidate: str, number: int, per_second: float, **fields: object) -> Record:
    """One measurement."""
    point = Point(APPEND_RANDOM, candidate, 64)._asdict()
    figures = {"per_second": per_second, "p50_ms": 1.0, "p99_ms": 4.0, "server_cpu_us": 20.0, "load_busy": 0.5}
    figures["others_busy"] = 0.02
    return Record(point | figures | {"round": number} | fields)


@pytest.mark.parametrize("name", CANDIDATES)
def test_every_candidate_says_when_its_answers_are_durable(name: str) -> None:
    found = CANDIDATES[name]
    assert len(found.durability.split()) >= 4
    assert found.delay == "LD_PRELOAD" or found.delay.startswith("not delayed: ")


def test_every_measure_has_its_candidates_and_each_can_be_asked_for_it() -> None:
    for measure in MEASURES:
        for name in measure.candidates:
            assert measure.name in CANDIDATES[name].load, (measure.name, name)
    used = {name for measure in MEASURES for name in measure.candidates}
    assert used == set(CANDIDATES)


def test_the_options_of_every_candidate_are_those_of_the_load_generator() -> None:
    for candidate in CANDIDATES.values():
        for measure in candidate.load if candidate.driver is generator else ():
            command = candidate.driver(candidate, PLACE, Served(1234, ()), Ask(measure, 64, 2.0, 0.5, 100.0))
            if measure in READS:
                asked = load_reads.options().parse_args(command[3:])
                assert (asked.port, asked.connections, asked.window) == (1234, 64, 2.0)
                continue
            asked = options().parse_args(command[3:])
            assert (asked.port, asked.rate) == (1234, 100.0)
            assert asked.connections * asked.in_flight == 64


def test_every_group_can_be_asked_for_by_name() -> None:
    assert [name for name, (module, *_) in MEASUREMENTS.items() if module == "suite.run"] == ["all", *GROUPS]


def test_candidates_change_their_order_from_round_to_round_and_those_without_a_delay_are_left_out() -> None:
    measure = Measure(APPEND_RANDOM, "appends", ("Semel", "Redis", "NATS JetStream"))
    assert [one.name for one in chosen(measure, 0, 0.0, "")] == ["Semel", "Redis", "NATS JetStream"]
    assert [one.name for one in chosen(measure, 1, 1.0, "")] == ["Redis", "Semel"]
    assert [one.name for one in chosen(measure, 0, 0.0, "NATS")] == ["Semel", "NATS JetStream"]


def test_slower_syncs_are_a_second_pass_of_the_measures_that_ask_for_it() -> None:
    found = list(passes(["ledger"], is_delayed=True))
    assert [(measure.name, delay) for measure, delay in found] == [
        ("ledger, 1 operation", 0.0),
        ("ledger, 1 operation", 1.0),
        ("ledger, 100 operations", 0.0),
        ("ledger, many transactions", 0.0),
    ]
    assert len(list(passes(["ledger"], is_delayed=False))) == 3


def test_no_round_begins_that_would_end_too_late() -> None:
    assert not is_too_late(0, 500.0, 60.0)
    assert not is_too_late(2, 200.0, 300.0)
    assert is_too_late(2, 201.0, 300.0)


def test_a_ratio_is_the_median_of_the_ratios_within_a_round() -> None:
    ours, theirs = (10.0, 100.0, 30.0), (20.0, 100.0, 10.0)
    records = [record("Semel", number, rate) for number, rate in enumerate(ours)]
    records += [record("Redis", number, rate) for number, rate in enumerate(theirs)]
    points = by_point([*records, record("Semel", 3, 1_000.0)])  # a round without its other half
    semel, redis = Point(APPEND_RANDOM, "Semel", 64), Point(APPEND_RANDOM, "Redis", 64)
    assert times(points, semel, redis) == 1.0
    assert typical(points, redis, "per_second") == 20.0
    assert times(points, semel, semel._replace(callers=1)) is None


def groups() -> dict[str, report.Group]:
    """Two runs, of which the newer one has the appends, and the older one a ledger of before."""
    appends = [
        *(record("Semel", number, 900.0, callers=callers) for number in range(3) for callers in (16, 64)),
        *(record("Redis", number, 1_000.0, callers=callers) for number in range(3) for callers in (16, 64)),
        record("Semel", 0, 500.0, delay_ms=1.0),
        record("Redis", 0, 250.0, delay_ms=1.0),
        record("the bare host", 0, 50_000.0),
        record("a candidate that is gone", 0, 1.0),
    ]
    old = [record("Semel", 0, 7.0), record("Semel", 0, 800.0, measure=LEDGER_SINGLE)]
    return report.newest([(ABOUT, appends), (ABOUT, old)])


def test_the_tables_have_the_newest_run_of_each_group() -> None:
    lines = list(report.render(groups()))
    assert "| append, random keys | 64 | Redis | 1,000 | 0.90 times | 1.0 | 4.0 | 20 | 250 | 2.00 times |" in lines
    assert "| append, random keys | 16 | Semel | 900 | 1.00 times | 1.0 | 4.0 | 20 | - | - |" in lines
    assert any("append with fdatasync took 0.50 ms" in line and "`make bench WHAT=appends`" in line for line in lines)
    assert any("10.0 µs of CPU" in line and "100,000 a second" in line for line in lines)
    assert any(line.startswith("| ledger, 1 operation | 64 | Semel | 800 |") for line in lines)
    assert any(line.startswith("- **Redis**: append-only file") for line in lines)
    assert not any("gone" in line for line in lines)


def test_figures_of_a_busy_machine_are_marked() -> None:
    busy = [record(name, number, 900.0, others_busy=0.6) for name in ("Semel", "Redis") for number in range(3)]
    lines = list(report.render(report.newest([(ABOUT, busy)])))
    assert any("**Other processes took 60% of all CPUs meanwhile" in line for line in lines)


def test_what_others_took_is_the_machine_without_servers_and_driver() -> None:
    second, cpus = 1_000_000_000, os.cpu_count() or 1
    opened, closed = Seen(0, 0, 0, 10.0), Seen(second, second // 2, 2 * second, 12.0)
    assert others_busy(opened, closed) == pytest.approx(0.25 / cpus)
    assert others_busy(opened, closed._replace(machine_ns=second)) == 0.0


def test_cpu_time_of_a_child_that_has_ended_is_not_lost() -> None:
    before = cpu_ns([os.getpid()])
    subprocess.run([sys.executable, "-c", "sum(range(3_000_000))"], check=True)
    used = cpu_ns([os.getpid()]) - before
    assert used >= 10_000_000 or not Path("/proc").exists()  # two hundredths of a second or more were spent


def test_the_page_names_every_measurement() -> None:
    text = PAGE.read_text("utf-8")
    for what in set(MEASUREMENTS) - {"all"}:
        assert re.search(rf"^\|[^|]*`{what}`", text, re.MULTILINE), what


def test_slower_syncs_come_from_a_library_that_takes_the_place_of_the_calls() -> None:
    assert delay_environment(0.0) == {}
    library = slow_library()
    if library is not None:  # there is a C compiler here
        assert all(hasattr(ctypes.CDLL(str(library)), name) for name in ("fsync", "fdatasync", "msync"))
        assert delay_environment(1.0) == {"LD_PRELOAD": str(library), "BENCH_SYNC_US": "1000"}
