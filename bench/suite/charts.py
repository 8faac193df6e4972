"""The charts of the docs: appends by connections, latencies by rate, and appends by stored keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.curve import Chart, Curve, draw
from bench.suite.measures import APPEND_AT_RATE, APPEND_RANDOM, GROWTH
from bench.suite.results import Record, by_point, typical

About = Mapping[str, Any]
"""What a run says of itself."""
Group = tuple[About, Sequence[Record]]
"""The measurements of a group, and the run that they are from."""


def charts(groups: Mapping[str, Group]) -> dict[str, tuple[str, str]]:
    """By file name, the title and the content of each chart that can be drawn."""
    found: dict[str, tuple[str, str]] = {}
    plans = (
        (
            "bench-connections.svg",
            "appends",
            Chart("Keyed appends a second, by connections", "connections", "a second", with_values=False),
        ),
        (
            "bench-latency.svg",
            "latency",
            Chart("99th percentile of keyed appends, by rate", "appends a second", "p99 ms", is_logarithmic=False),
        ),
        (
            "bench-growth.svg",
            GROWTH,
            Chart(
                "Keyed appends a second, by stored keys",
                "stored keys",
                "a second",
                is_logarithmic=False,
                with_values=False,
            ),
        ),
    )
    for name, group, chart in plans:
        curves = curves_of(group, groups[group][1]) if group in groups else []
        if curves:
            found[name] = chart.title, draw(chart, curves)
    return found


def curves_of(group: str, records: Sequence[Record]) -> list[Curve]:
    """A curve for each candidate."""
    points = by_point(records)
    found: dict[str, list[tuple[float, float]]] = {}
    if group == GROWTH:
        for record in records:
            found.setdefault(record["candidate"], []).append((record["stored"], record["per_second"]))
    for point in sorted(points):
        rate = typical(points, point, "per_second")
        p99 = typical(points, point, "p99_ms")
        if point.delay_ms or rate is None or p99 is None:
            continue
        if point.measure == APPEND_RANDOM:
            found.setdefault(point.candidate, []).append((point.callers, rate))
        elif point.measure == APPEND_AT_RATE and point.share:
            found.setdefault(point.candidate, []).append((rate, p99))
    named = sorted(found.items(), key=lambda one: (one[0] != "Semel", one[0]))  # Semel keeps its colour
    return [Curve(name, sorted(some)) for name, some in named if len(some) > 1]
