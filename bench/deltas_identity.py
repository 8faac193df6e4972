"""What it costs to verify the identity of a delta, beside plain orjson and SHA-256 of the same delta.

Both sides begin with the delta as a parser has left it. The plain side prints the five members that are hashed, which
it is handed ready, with sorted names, and hashes them; that is the right text for most deltas, not for all. The other
side prints each column and name as it has to be, which is right for every delta, and hashes that: it is held to the
target. A push has those texts by then, because they are what is stored, and only hashes them; what that adds is told
beside it, and what reading and verifying take together. They alternate in one loop; what counts is the median of the
ratios within a turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from statistics import median
from typing import Any, NamedTuple, TypeVar

import orjson

from semel.kernel.hashes import columns_text, delta_id, json_text, plain_column
from semel.surfaces.deltas.model import Delta as ReadDelta
from semel.surfaces.deltas.wire.push_body import content_id, read_delta

TARGET = 3.0
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
    "floats in another notation": delta_with(1e21, 1e-7, 100.0),
    "4 KiB of text": delta_with('Buy milk, and "bread". ' * 180),
}


class Cost(NamedTuple):
    """Microseconds of processor time for one delta."""

    made: float
    """The id alone, from a parsed delta."""
    added: float
    """What verifying adds to a push."""
    read: float
    """Reading and verifying."""
    plain: float
    times: float
    times_added: float


def plain(delta: Delta) -> bytes:
    """The yardstick."""
    return sha256(orjson.dumps(delta, option=orjson.OPT_SORT_KEYS)).digest()


def identified(delta: Delta) -> bytes:
    """The id of a delta, by the texts of its parts."""
    columns = columns_text([plain_column(one["column"], json_text(one["value"])) for one in delta["columns"]])
    return delta_id(json_text(delta["clientId"]), columns, int(delta["hlc"]), json_text(delta["rowId"]), delta["table"])


def sent(delta: Delta) -> Delta:
    """With what is not hashed."""
    return {**delta, "op": "INSERT", "deltaId": "0" * 64}


def read_and_verified(item: Delta) -> bytes:
    """As a push does it."""
    return content_id(read_delta(item, None))


D = TypeVar("D", Delta, ReadDelta)


def used(work: Callable[[D], bytes], delta: D, number: int) -> int:
    """Nanoseconds of processor time for so many."""
    began = time.thread_time_ns()
    for _ in range(number):
        work(delta)
    return time.thread_time_ns() - began


def measure(turns: int = TURNS, each: int = EACH) -> dict[str, Cost]:
    """All deltas, turn after turn."""
    times: dict[str, list[tuple[int, int, int, int]]] = {name: [] for name in DELTAS}
    for _ in range(turns):
        for name, delta in DELTAS.items():
            item = sent(delta)
            assert identified(delta) == read_and_verified(item)
            turn = (
                used(identified, delta, each),
                used(content_id, read_delta(item, None), each),
                used(read_and_verified, item, each),
                used(plain, delta, each),
            )
            times[name].append(turn)
    return {
        name: Cost(
            median(made for made, _, _, _ in some) / each / 1_000,
            median(added for _, added, _, _ in some) / each / 1_000,
            median(read for _, _, read, _ in some) / each / 1_000,
            median(alone for _, _, _, alone in some) / each / 1_000,
            median(made / alone for made, _, _, alone in some),
            median(added / alone for _, added, _, alone in some),
        )
        for name, some in times.items()
    }


def print_costs(costs: Mapping[str, Cost]) -> bool:
    """The table; whether all are within the target."""
    print("| delta | orjson and SHA-256, µs | its id, µs | times | added to a push, µs | times | with reading, µs |")
    print("|---|---|---|---|---|---|---|")
    for name, cost in costs.items():
        print(
            f"| {name} | {cost.plain:.2f} | {cost.made:.2f} | {cost.times:.2f} "
            f"| {cost.added:.2f} | {cost.times_added:.2f} | {cost.read:.2f} |"
        )
    worst = max(cost.times for cost in costs.values())
    print(f"\nThe worst ratio of making an id is {worst:.2f} (target: at most {TARGET}).\n")
    return worst <= TARGET


if __name__ == "__main__":
    print_costs(measure())
