"""The rates of the comparison: one table of the newest committed runs in `bench/results`, and how each is durable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench.suite import measures
from bench.suite.candidates import CANDIDATES
from bench.suite.measures import MEASURES, Measure, Point
from bench.suite.report import Group, figure, newest
from bench.suite.results import Points, by_point, read, times, typical
from bench.suite.servers import DELAY_MS

ROOT = Path(__file__).parent.parent
SHOWN: Sequence[tuple[str, Sequence[int]]] = (
    (measures.APPEND_RANDOM, (1, 64, 256)),
    (measures.APPEND_KNOWN, (64,)),
    (measures.JOB_SUBMIT, (64,)),
    (measures.JOB_CYCLE, (64,)),
    (measures.JOB_CYCLE_MANY, (64,)),
    (measures.APPEND_ONE_STREAM, (64,)),
    (measures.CATCH_UP, (4,)),
    (measures.TAIL, (measures.READERS,)),
    (measures.EVENTS_SINGLE, (32,)),
    (measures.EVENTS_BATCH, (4,)),
    (measures.LEDGER_SINGLE, (64,)),
    (measures.LEDGER_MANY, (16,)),
    (measures.APPEND_ON_POSTGRES, (64, 256)),
)
"""The measures of the table, with the numbers of callers."""


def groups_of_runs() -> Mapping[str, Group]:
    """The newest run of each group."""
    return newest(read(ROOT / "bench/results"))


def benchmark_table() -> Iterator[str]:
    """The rates, the runs that they are from, and when each candidate answers."""
    groups = groups_of_runs()
    points = {group: by_point(records) for group, (_, records) in groups.items()}
    slower = f"Semel is, with {DELAY_MS:g} ms more a sync"
    yield f"| measure | callers | candidate | a second | Semel is | p50 ms | p99 ms | {slower} |"
    yield "|---|---|---|---|---|---|---|---|"
    names: set[str] = set()
    for name, callers in SHOWN:
        measure = next(one for one in MEASURES if one.name == name)
        for count in callers:
            rows = list(_rows(measure, count, points.get(measure.group, {})))
            names |= {candidate for candidate, _ in rows}
            yield from (row for _, row in rows)
    yield from ("", " ".join(_runs(groups)), "", "### When an answer is durable", "")
    for candidate, about in CANDIDATES.items():
        if candidate in names:
            yield f"- **{candidate}**: {about.durability}."


def _rows(measure: Measure, callers: int, points: Points) -> Iterator[tuple[str, str]]:
    """Each candidate with its row."""
    ours = Point(measure.name, measure.candidates[0], callers)
    for candidate in measure.candidates:
        point = Point(measure.name, candidate, callers)
        if point in points:
            delayed = times(points, ours._replace(delay_ms=DELAY_MS), point._replace(delay_ms=DELAY_MS))
            cells = [measure.name, str(callers), candidate, figure(typical(points, point, "per_second"))]
            cells += [_ratio(times(points, ours, point) if point != ours else None)]
            cells += [_milliseconds(typical(points, point, name)) for name in ("p50_ms", "p99_ms")]
            yield candidate, f"| {' | '.join([*cells, _ratio(delayed if point != ours else None)])} |"


def _runs(groups: Mapping[str, Group]) -> Iterator[str]:
    """Where and when, and how it is repeated."""
    shown = {one.group for one in MEASURES for name, _ in SHOWN if one.name == name}
    abouts = [about for group, (about, _) in groups.items() if group in shown]
    days = sorted({about["date"][:10] for about in abouts})
    machine = abouts[0]["machine"]
    syncs = [about["machine"]["sync_p50_ms"] for about in abouts]
    yield f"{', '.join(days)}; {machine['cpus']} CPUs ({machine['cpu']}), one for the load, one for the servers;"
    yield f"a 4 KiB append with fdatasync took {min(syncs):.2f} to {max(syncs):.2f} ms at the median."
    yield "Repeat it with `make bench`."


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} times"


def _milliseconds(value: float | None) -> str:
    return f"{value:.1f}" if value else "-"
