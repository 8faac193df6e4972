"""The tables of docs/comparison.md from committed results: each group from the newest run that measured it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from bench.suite.candidates import CANDIDATES
from bench.suite.measures import GROUPS, MEASURES, Measure, Point
from bench.suite.results import Points, Record, by_point, times, typical
from bench.suite.servers import DELAY_MS

About = Mapping[str, Any]
"""What a run says of itself."""
Group = tuple[About, Sequence[Record]]
"""The measurements of a group, and the run that they are from."""
QUIET_SHARE = 0.1
"""Of all CPUs, for other processes: with more than that, rates and ratios are no guide."""
CEILING_CALLERS = 64
TITLES = {"postgres": "PostgreSQL"}
MORE = {"expected": "received", "peak_mib": "memory MiB"}
"""Columns of the tables whose records have them."""


def newest(runs: Sequence[tuple[About, Sequence[Record]]]) -> dict[str, Group]:
    """By group, the newest run that has it, with the records of that group alone."""
    found: dict[str, Group] = {}
    for group in GROUPS:
        asked = {(one.name, name) for one in MEASURES if one.group == group for name in one.candidates}
        for about, records in runs:
            mine = [record for record in records if (record["measure"], record["candidate"]) in asked]
            if mine:
                found[group] = about, mine
                break
    return found


def render(groups: Mapping[str, Group]) -> Iterator[str]:
    """The lines of the page."""
    for group, (about, records) in groups.items():
        yield f"## {TITLES.get(group, group.capitalize())}"
        yield ""
        yield from table([one for one in MEASURES if one.group == group], by_point(records))
        yield f"{_run(about)} {disturbance(records)} Repeat it: `make bench WHAT={group}`."
        yield from ceiling(records)
        yield ""
    yield "## When an answer is durable"
    yield ""
    yield "For each candidate, and how its syncs were made slower:"
    yield ""
    named = {record["candidate"] for _, records in groups.values() for record in records}
    for name, candidate in CANDIDATES.items():
        if name in named:
            yield f"- **{name}**: {candidate.durability} ({candidate.delay})."


def table(measures: Sequence[Measure], points: Points) -> Iterator[str]:
    """The figures of a group; ratios are those of the first candidate of a measure to the one of the row."""
    records = [record for some in points.values() for record in some.values()]
    has_delay = any(point.delay_ms for point in points)
    fields = [field for field in MORE if any(record.get(field) for record in records)]
    more = "".join(f" {MORE[field]} |" for field in fields)
    more += f" with {DELAY_MS:g} ms more a sync | Semel is |" if has_delay else ""
    yield f"| measure | callers | candidate | a second | Semel is | p50 ms | p99 ms | server CPU µs |{more}"
    yield f"|{'---|' * (8 + len(fields) + 2 * has_delay)}"
    for measure in measures:
        for callers in measure.callers:
            for name in measure.candidates:
                for share in (0.0, *measure.shares):
                    point = Point(measure.name, name, callers, share=share)
                    if point in points:
                        yield row(measure, point, points, fields, has_delay=has_delay)
    yield ""


def row(measure: Measure, point: Point, points: Points, fields: Sequence[str], *, has_delay: bool) -> str:
    """One candidate with one number of callers."""
    ours = point._replace(candidate=measure.candidates[0])
    name = f"{point.measure} ({point.share:.0%})" if point.share else point.measure
    cells = [name, str(point.callers), point.candidate, figure(typical(points, point, "per_second"))]
    cells += ["-" if point.share else _times(times(points, ours, point))]
    cells += [_milliseconds(typical(points, point, figure)) for figure in ("p50_ms", "p99_ms")]
    cells += [figure(typical(points, point, "server_cpu_us"))]
    cells += [_more(points, point, field) for field in fields]
    if has_delay:
        slow = point._replace(delay_ms=DELAY_MS)
        cells += [figure(typical(points, slow, "per_second"))]
        cells += [_times(times(points, ours._replace(delay_ms=DELAY_MS), slow))]
    return f"| {' | '.join(cells)} |"


def _more(points: Points, point: Point, field: str) -> str:
    """A figure that not all runs have; of the messages that were expected, the share that was received."""
    value = typical(points, point, field)
    if field == "expected" and value:
        return f"{(typical(points, point, 'units') or 0.0) / value:.0%}"
    return figure(value)


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} times"


def _milliseconds(value: float | None) -> str:
    return f"{value:.1f}" if value else "-"


def ceiling(records: Sequence[Record]) -> Iterator[str]:
    """What the load generator can do: its CPU time for a request that the bare host answers."""
    costs = sorted(
        record["load_busy"] / record["per_second"]
        for record in records
        if record["candidate"] == "the bare host" and record["callers"] >= CEILING_CALLERS
    )
    if costs:
        cost = costs[len(costs) // 2]
        busiest = max(record.get("load_busy", 0.0) for record in records)
        yield (
            f"The load generator took {cost * 1e6:.1f} µs of CPU for a request to the bare host, so it can send about "
            f"{1 / cost:,.0f} a second; it was never busier than {busiest:.0%} of its CPU."
        )


def _run(about: About) -> str:
    found = about["machine"]
    pinned = about["pinned"]
    place = (
        f"load generator on CPU {pinned['load']}, servers on {', '.join(map(str, pinned['servers']))}"
        if pinned["servers"]
        else "nothing pinned"
    )
    return (
        f"{about['date'][:10]}, revision `{about['commit']}`, {about['rounds']} rounds of {about['seconds']:g} s; "
        f"{found['cpus']} CPUs ({found['cpu']}), {place}, load average {found['load_average']:.1f} at the end; "
        f"Python {found['python']}; a 4 KiB append with fdatasync took {found['sync_p50_ms']:.2f} ms at the median, "
        f"{found['sync_p99_ms']:.2f} at p99."
    )


def disturbance(records: Iterable[Record]) -> str:
    """What other processes took, at the median."""
    share = float(median(record["others_busy"] for record in records))
    said = f"Other processes took {share:.0%} of all CPUs meanwhile"
    return f"**{said}: rates, latencies and ratios are no guide.**" if share > QUIET_SHARE else f"{said}."


def figure(value: float | None) -> str:
    """A whole number, or a dash for none."""
    return "-" if value is None else f"{value:,.0f}"
