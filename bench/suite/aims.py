"""The ratios that the project has set itself beside those that were measured, unless the machine was too busy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

from bench.suite.measures import TARGETS, Point, Target
from bench.suite.results import Points, Record, times, typical

QUIET_SHARE = 0.1
"""Of all CPUs, for other processes: with more than that, ratios are not held against their aims."""
SMALL_RATIO = 0.1
"""One below it is told with more digits."""
FIGURES = {"per_second": "", "p50_ms": "p50 ", "p99_ms": "p99 ", "peak_mib": "memory, "}
"""How a ratio of a figure is called."""


def targets(points: Mapping[str, Points]) -> Iterator[str]:
    """The ratios that the project has set itself, as far as they were measured."""
    merged: dict[Point, Mapping[int, Record]] = {}
    for some in points.values():
        merged |= some
    yield "| measure | beside | reached | aim | server CPU µs | theirs |"
    yield "|---|---|---|---|---|---|"
    for target in TARGETS:
        ratio = times(merged, target.over, target.under, target.figure)
        if ratio is not None:
            costs = [figure(typical(merged, point, "server_cpu_us")) for point in (target.over, target.under)]
            verdict = (
                f"{_digits(ratio)}, disturbed" if is_disturbed(merged[target.over].values()) else _judged(ratio, target)
            )
            yield f"| {_what(target)} | {_beside(target)} | {verdict} | {_aim(target)} | {' | '.join(costs)} |"
    yield ""


def is_disturbed(records: Iterable[Record]) -> bool:
    """Whether other processes took too much of the machine for ratios to mean anything."""
    return others_share(records) > QUIET_SHARE


def others_share(records: Iterable[Record]) -> float:
    """The share of all CPUs that other processes took, at the median."""
    return float(median(record["others_busy"] for record in records))


def disturbance(records: Sequence[Record]) -> str:
    """What other processes took."""
    share = others_share(records)
    said = f"Other processes took {share:.0%} of all CPUs meanwhile"
    return f"**{said}: rates, latencies and ratios are no guide.**" if share > QUIET_SHARE else f"{said}."


def _what(target: Target) -> str:
    over, figure = target.over, FIGURES[target.figure]
    what = f"{figure}{over.measure}"
    if over.share:
        what = f"{figure}at {over.share:.0%} of the peak"
    slower = f", {over.delay_ms:g} ms more a sync" if over.delay_ms else ""
    return f"{what}, {over.callers} callers{slower}"


def _beside(target: Target) -> str:
    over, under = target.over, target.under
    return under.measure if over.candidate == under.candidate else under.candidate


def _aim(target: Target) -> str:
    return f"{'at least' if target.is_least else 'at most'} {target.bound:g}"


def _judged(ratio: float, target: Target) -> str:
    is_met = ratio >= target.bound if target.is_least else ratio <= target.bound
    return _digits(ratio) if is_met else f"{_digits(ratio)}, missed"


def _digits(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio >= SMALL_RATIO else f"{ratio:.4f}"


def figure(value: float | None) -> str:
    """A whole number, or a dash for none."""
    return "-" if value is None else f"{value:,.0f}"
