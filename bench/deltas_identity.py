"""What it costs to verify the identity of a delta, beside plain orjson and SHA-256 of the same delta.

Both begin with the delta as a parser has left it, and end with 32 bytes. The plain side prints the five members that
are hashed, which it is handed ready, with sorted names; that is the right text for most deltas, not for all. Ours makes
the text that is right for every delta. They alternate in one loop; what counts is the median of the ratios within a
turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from statistics import median
from typing import Any, NamedTuple

import orjson

from semel.kernel.delta_id import content_id

TARGET = 3.0
REWRITTEN = "floats in another notation"
"""Doubles that orjson prints as they may not stand in the text; told, and not held to the target."""
TURNS = 100
EACH = 500
"""Deltas of one turn."""

Delta = dict[str, Any]


def delta_with(*columns: Any) -> Delta:
    """The members that are hashed."""
    return {
        "clientId": "3a8eeaaa-04cf-4b24-a10d-250a9728ecd9",
        "columns": [{"column": f"column_{number}", "value": value} for number, value in enumerate(columns)],
        "hlc": "115998720000000000",
        "rowId": "2475f17f-69ab-4a0a-a7cd-942c250baf24",
        "table": "todos",
    }


DELTAS: Mapping[str, Delta] = {
    "no column": delta_with(),
    "1 column": delta_with("Buy milk"),
    "5 columns": delta_with("Buy milk", False, 42, None, "at the corner shop"),
    "20 columns": delta_with(*("Buy milk", False, 42, None, "at the corner shop") * 4),
    "text beyond ASCII": delta_with("naïve café — 日本語 🎉", "Grüße"),
    "nested": delta_with({"b": [3, 1, 2], "a": {"d": None, "c": "x"}, "9": True}),
    "floats": delta_with(0.1, 123.456, -2.5),
    REWRITTEN: delta_with(1e21, 1e-7, 100.0),
    "4 KiB of text": delta_with('Buy milk, and "bread". ' * 180),
}


class Cost(NamedTuple):
    """Microseconds of processor time for one delta."""

    ours: float
    plain: float
    times: float


def plain(delta: Delta) -> bytes:
    """The yardstick."""
    return sha256(orjson.dumps(delta, option=orjson.OPT_SORT_KEYS)).digest()


def ours(delta: Delta) -> bytes:
    """As a push is verified."""
    return content_id(delta)


def used(verify: Callable[[Delta], bytes], delta: Delta, number: int) -> int:
    """Nanoseconds of processor time for so many."""
    began = time.thread_time_ns()
    for _ in range(number):
        verify(delta)
    return time.thread_time_ns() - began


def measure(turns: int = TURNS, each: int = EACH) -> dict[str, Cost]:
    """All deltas, turn after turn."""
    times: dict[str, list[tuple[int, int]]] = {name: [] for name in DELTAS}
    for _ in range(turns):
        for name, delta in DELTAS.items():
            times[name].append((used(ours, delta, each), used(plain, delta, each)))
    return {
        name: Cost(
            median(a for a, _ in some) / each / 1_000,
            median(b for _, b in some) / each / 1_000,
            median(a / b for a, b in some),
        )
        for name, some in times.items()
    }


def print_costs(costs: Mapping[str, Cost]) -> bool:
    """The table; whether all are within the target."""
    print("| delta | verified, µs | orjson and SHA-256, µs | times |")
    print("|---|---|---|---|")
    for name, cost in costs.items():
        print(f"| {name} | {cost.ours:.2f} | {cost.plain:.2f} | {cost.times:.2f} |")
    worst = max(cost.times for name, cost in costs.items() if name != REWRITTEN)
    print(f"\nThe worst ratio, without {REWRITTEN}, is {worst:.2f} (target: at most {TARGET}).\n")
    return worst <= TARGET


if __name__ == "__main__":
    print_costs(measure())
