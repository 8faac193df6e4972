"""The ratios that the project has set itself beside those that were measured, unless the machine was too busy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

from bench.suite.measures import TARGETS, Point, Target
from bench.suite.results import Points, Record, times, typical

QUIET_SHARE = 0.1
"""Of all CPUs, for other processes: with more than that, ratios are not held against their aims."""


def targets(points: Mapping[str, Points]) -> Iterator[str]:
    """The ratios that the project has set itself, as far as they were measured."""
    merged: dict[Point, Mapping[int, Record]] = {}
    for some in points.values():
        merged |= some
    yield "| measure | beside | reached | aim | server CPU µs | theirs |"
    yield "|---|---|---|---|---|---|"
    for target in TARGETS:
        ratio = times(merged, target.over, target.under, "p99_ms" if target.is_p99 else "per_second")
        if ratio is not None:
            costs = [figure(typical(merged, point, "server_cpu_us")) for point in (target.over, target.under)]
            verdict = (
                f"{ratio:.2f}, disturbed" if is_disturbed(merged[target.over].values()) else _judged(ratio, target)
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
    over = target.over
    what = f"p99 at {over.share:.0%} of the peak" if target.is_p99 else over.measure
    slower = f", {over.delay_ms:g} ms more a sync" if over.delay_ms else ""
    return f"{what}, {over.callers} callers{slower}"


def _beside(target: Target) -> str:
    over, under = target.over, target.under
    return under.measure if over.candidate == under.candidate else under.candidate


def _aim(target: Target) -> str:
    return f"{'at most' if target.is_p99 else 'at least'} {target.least:g}"


def _judged(ratio: float, target: Target) -> str:
    is_met = ratio <= target.least if target.is_p99 else ratio >= target.least
    return f"{ratio:.2f}" if is_met else f"{ratio:.2f}, missed"


def figure(value: float | None) -> str:
    """A whole number, or a dash for none."""
    return "-" if value is None else f"{value:,.0f}"
