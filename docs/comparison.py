"""Figures of the comparisons from committed runs: the kill schedule of `tests/once/peers`, and Redis."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from bench.suite.measures import APPEND_RANDOM, Point
from bench.suite.results import by_point, times
from docs.benchmarks import groups_of_runs
from tests.once.peers.__main__ import newest_run, table
from tests.once.peers.app import POINTS
from tests.once.peers.candidates import BUILDERS

CONNECTIONS = (1, 16, 64, 256)


def crash_table() -> Iterator[str]:
    """The outcome of each candidate at each point, and where, when and with which versions it was found."""
    about, found = newest_run()
    yield from table(found, list(BUILDERS), POINTS)
    yield ""
    yield from _run(about)


def _run(about: dict[str, Any]) -> Iterator[str]:
    machine = about["machine"]
    yield (
        f"{about['date'][:10]}; {machine['cpus']} CPUs ({machine['cpu']}), {machine['system']}, Python "
        f"{machine['python']}; a synced write of 4 KiB took {machine['sync_p50_ms']:.2f} ms at the median. "
        f"With {about['versions']}."
    )


@cache
def _shares() -> tuple[tuple[int, float], ...]:
    points = by_point(groups_of_runs()["appends"][1])
    pairs = ((callers, _share(points, callers)) for callers in CONNECTIONS)
    return tuple((callers, share) for callers, share in pairs if share is not None)


def _share(points: Any, callers: int) -> float | None:
    ours, theirs = (Point(APPEND_RANDOM, name, callers) for name in ("Semel", "Redis"))
    return times(points, ours, theirs)


def redis_share() -> Iterator[str]:
    """How much of the rate of Redis Semel reaches, by connections: medians of the ratios within a round."""
    shares = ", ".join(f"{share:.2f} with {callers}" for callers, share in _shares())
    yield f"Share of the rate of Redis that Semel reaches, by connections, with new keys: {shares}."
