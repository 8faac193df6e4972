"""The screen of `semel top`, drawn from samples of `GET /v1/live`: a pure function of them.

Counts are since the start of the server, so that a rate is the difference of two samples. Samples of two runs of the
server are never compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

VERDICTS = ("fresh", "replay", "pending", "mismatch", "gap", "fenced", "refused")
_ALWAYS = ("fresh", "replay")
_BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class LiveSample:
    """One answer of `GET /v1/live`."""

    now_ms: int
    started_ms: int
    version: str
    is_ready: bool
    writes: Mapping[str, Mapping[str, int]]
    """The number of writes of each surface, by verdict."""
    doubles: int
    commits: int
    bounds: Sequence[float]
    """Upper bounds of the buckets of commit times, in seconds."""
    buckets: Sequence[int]
    queue_writes: int
    queue_bytes: int
    oldest_seconds: float
    readers: int
    connections: int

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> LiveSample:
        """Raises `KeyError`, `TypeError` or `ValueError` for an answer of another kind."""
        queue, times = facts["queue"], facts["commit_seconds"]
        return cls(
            now_ms=int(facts["now_ms"]),
            started_ms=int(facts["started_ms"]),
            version=str(facts["version"]),
            is_ready=facts["ready"] == "ok",
            writes={str(name): {str(k): int(n) for k, n in by.items()} for name, by in facts["writes"].items()},
            doubles=int(facts["doubles_prevented"]),
            commits=sum(map(int, facts["commits"].values())),
            bounds=[float(bound) for bound in times["bounds"]],
            buckets=[int(count) for count in times["counts"]],
            queue_writes=int(queue["writes"]),
            queue_bytes=int(queue["bytes"]),
            oldest_seconds=float(queue["oldest_seconds"]),
            readers=int(facts["live_readers"]),
            connections=int(facts["connections"]),
        )

    def follows(self, earlier: LiveSample) -> bool:
        """Whether both are of one run of the server, so that their difference is a rate."""
        return self.started_ms == earlier.started_ms and self.now_ms > earlier.now_ms


@dataclass(frozen=True)
class LiveRates:
    """What happened between two samples, a second."""

    writes: Mapping[str, Mapping[str, float]]
    doubles: float
    commits: float
    p50_seconds: float | None
    """The upper bound of the bucket of the median commit time; None without a commit."""
    p99_seconds: float | None

    @classmethod
    def between(cls, earlier: LiveSample, later: LiveSample) -> LiveRates:
        """The rates; `later` follows `earlier`."""
        seconds = (later.now_ms - earlier.now_ms) / 1_000

        def rate(surface: str, verdict: str) -> float:
            before = earlier.writes.get(surface, {}).get(verdict, 0)
            return (later.writes[surface].get(verdict, 0) - before) / seconds

        buckets = [new - old for new, old in zip(later.buckets, earlier.buckets, strict=True)]
        return cls(
            writes={surface: {verdict: rate(surface, verdict) for verdict in VERDICTS} for surface in later.writes},
            doubles=(later.doubles - earlier.doubles) / seconds,
            commits=(later.commits - earlier.commits) / seconds,
            p50_seconds=quantile(later.bounds, buckets, 0.5),
            p99_seconds=quantile(later.bounds, buckets, 0.99),
        )

    @property
    def total(self) -> float:
        """Writes a second, of all surfaces and verdicts."""
        return sum(sum(by.values()) for by in self.writes.values())

    @property
    def facts(self) -> dict[str, Any]:
        """The rates for programs."""
        by = {name: {verdict: round(n, 1) for verdict, n in by.items()} for name, by in self.writes.items()}
        return {
            "writes_per_second": by,
            "doubles_prevented_per_second": round(self.doubles, 1),
            "commits_per_second": round(self.commits, 1),
            "commit_p50_seconds": self.p50_seconds,
            "commit_p99_seconds": self.p99_seconds,
        }


def quantile(bounds: Sequence[float], counts: Sequence[int], share: float) -> float | None:
    """The upper bound of the bucket that has this share of the values; the largest bound if it is beyond all."""
    total, seen = sum(counts), 0
    if total <= 0:
        return None
    for bound, count in zip(bounds, counts, strict=False):
        seen += count
        if seen >= share * total:
            return bound
    return bounds[-1]


def screen(samples: Sequence[LiveSample], url: str, width: int) -> list[str]:
    """The lines of the screen. The last sample is the present; earlier ones give the rates and the history."""
    now = samples[-1]
    steps = [LiveRates.between(a, b) for a, b in pairwise(samples) if b.follows(a)]
    has_rate = len(samples) > 1 and now.follows(samples[-2])
    rates = steps[-1] if has_rate else None
    history = _history([step.total for step in steps], width - 30)
    lines = [
        f"semel {now.version} at {url}   up {duration((now.now_ms - now.started_ms) / 1_000)}   "
        + ("ready" if now.is_ready else "NOT READY: run semel doctor"),
        "",
        f"writes       {_rate(rates, lambda one: one.total)}   {history}",
        f"doubles      {_rate(rates, lambda one: one.doubles)}   {now.doubles:,} prevented since the start",
        f"commits      {_rate(rates, lambda one: one.commits)}   {_commit_times(rates)}",
        f"queue        {now.queue_writes:,} writes, {now.queue_bytes:,} bytes, the oldest {_time(now.oldest_seconds)}",
        f"connections  {now.connections:,}, {now.readers:,} live readers",
        "",
        *_table(now, rates),
    ]
    return [line[:width].rstrip() for line in lines]


def _table(now: LiveSample, rates: LiveRates | None) -> list[str]:
    """One line a surface: writes a second by verdict, and the number since the start.

    A verdict that no write has had yet has no column, so that the table fits into 80 columns.
    """
    seen = [one for one in VERDICTS if one in _ALWAYS or any(by.get(one) for by in now.writes.values())]
    lines = [f"{'surface':<10}{''.join(f'{one:>9}/s' for one in seen)}{'since start':>14}"]
    for name, by in now.writes.items():
        cells = "".join(f"{_number(rates.writes[name][one] if rates else None):>11}" for one in seen)
        lines.append(f"{name:<10}{cells}{sum(by.values()):>14,}")
    return lines


def _commit_times(rates: LiveRates | None) -> str:
    if rates is None or rates.p50_seconds is None or rates.p99_seconds is None:
        return "no commit in this interval"
    return f"p50 up to {_time(rates.p50_seconds)}, p99 up to {_time(rates.p99_seconds)}"


def _rate(rates: LiveRates | None, of: Callable[[LiveRates], float]) -> str:
    return f"{_number(None if rates is None else of(rates)):>9}/s"


def _number(value: float | None) -> str:
    """A rate in few digits: one decimal below 10, because 0.2 writes a second is not none."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.1f}"


def _time(seconds: float) -> str:
    return f"{seconds:,.2f} s" if seconds >= 1 else f"{seconds * 1_000:.3g} ms"


def duration(seconds: float) -> str:
    """A time span in its two largest units."""
    whole = max(int(seconds), 0)
    days, hours, minutes = whole // 86_400, whole // 3_600 % 24, whole // 60 % 60
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {whole % 60} s"


def _history(values: Sequence[float], width: int) -> str:
    """The latest values as bars; the highest is a full bar."""
    shown = values[-max(width, 0) :] if width > 0 else []
    most = max(shown, default=0.0)
    return "".join(_BARS[0] if most <= 0 else _BARS[round(value / most * (len(_BARS) - 1))] for value in shown)
