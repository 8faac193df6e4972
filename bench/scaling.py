"""`make bench WHAT=scaling`: the simulation of locks and commits, compared with measured points, then carried further.

`bench/scaling_points.json` has what `make bench WHAT=namespaces` measured. For each load and delay one number is
fitted: the round trips of a batch, so that one node alone is as fast as measured. What two nodes do, in one namespace
and each in its own, is then predicted and compared: a ratio that is further off than `TOLERANCE` fails the run. The
rest is what the same simulation says of more nodes and slower disks; it is a calculation, not a measurement.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.curve import Chart, Curve, draw
from bench.namespaces import ALONE, APART, OVERLAPPING, PLACES, SHARED
from bench.simulation import Deployment, simulate

POINTS = Path(__file__).with_name("scaling_points.json")
PICTURE = Path(__file__).parents[1] / "docs/operating/scaling.svg"
TOLERANCE = 0.25
"""Largest difference between a simulated and a measured ratio, as a share of the measured one."""
BATCH_CPU_US, WRITE_CPU_US = 600, 150
"""Work of a batch and of a write on a core, with their shares of database and client."""
NODES = (1, 2, 4, 8, 16)
CONNECTIONS = 64


class Compared(NamedTuple):
    """One arrangement: measured and simulated, as a multiple of one node."""

    delay: str
    surface: str
    arrangement: str
    measured: float
    simulated: float

    @property
    def is_close(self) -> bool:
        """Whether the simulation may be believed here."""
        return abs(self.simulated / self.measured - 1) <= TOLERANCE


def deployment_of(points: Mapping[str, Any], delay: str, arrangement: str, batch_us: int) -> Deployment:
    """A measured arrangement as the simulation knows it; the machine has two cores."""
    places = PLACES[arrangement]
    delay_us, commit_us = round(points["delay_ms"] * 1_000), round(points["commit_ms"][delay] * 1_000)
    is_overlapping = delay == OVERLAPPING
    return Deployment(
        nodes=len(places),
        namespaces=len(set(places)),
        connections=points["connections"],
        batch_us=batch_us,
        batch_cpu_us=BATCH_CPU_US,
        write_cpu_us=WRITE_CPU_US,
        sync_us=max(0, commit_us - delay_us) if is_overlapping else commit_us,
        delay_us=delay_us if is_overlapping else 0,
    )


def fitted(points: Mapping[str, Any], delay: str, per_second: float) -> int:
    """The round trips of a batch, in microseconds, that make one node as fast as it was measured."""
    low, high = 0, 100_000
    while high - low > 50:
        middle = (low + high) // 2
        if simulate(deployment_of(points, delay, ALONE, middle), 5.0).per_second > per_second:
            low = middle
        else:
            high = middle
    return low


def compared(points: Mapping[str, Any]) -> Iterator[Compared]:
    """Two nodes, measured and simulated."""
    rows = {(row["delay"], row["surface"], row["arrangement"]): row for row in points["rows"]}
    for delay, surface in dict.fromkeys((delay, surface) for delay, surface, _ in rows):
        batch_us = fitted(points, delay, rows[delay, surface, ALONE]["per_second"])
        alone = simulate(deployment_of(points, delay, ALONE, batch_us)).per_second
        for arrangement in (SHARED, APART):
            got = simulate(deployment_of(points, delay, arrangement, batch_us)).per_second
            yield Compared(delay, surface, arrangement, rows[delay, surface, arrangement]["of_one_node"], got / alone)


def further(name: str, namespaces: int | None, **changes: int) -> Curve:
    """Writes a second of 1 to 16 nodes, each on two cores of its own; None is a namespace for each node."""
    return Curve(
        name,
        [
            (
                nodes,
                round(
                    simulate(
                        Deployment(
                            nodes=nodes,
                            namespaces=nodes if namespaces is None else min(nodes, namespaces),
                            connections=CONNECTIONS,
                            batch_cpu_us=BATCH_CPU_US,
                            write_cpu_us=WRITE_CPU_US,
                            cores=2 * nodes + 2,
                            **{"batch_us": 1_000, "sync_us": 1_000} | changes,
                        ),
                        5.0,
                    ).per_second
                ),
            )
            for nodes in NODES
        ],
    )


def curves() -> list[Curve]:
    """What more nodes give, by namespaces and by disk."""
    return [
        further("a namespace each, sync 1 ms", None),
        further("a namespace each, sync 8 ms", None, sync_us=8_000),
        further("four namespaces, sync 1 ms", 4),
        further("one namespace, sync 1 ms", 1),
        further("one namespace, sync 8 ms", 1, sync_us=8_000),
    ]


def table(some: Sequence[Curve]) -> Iterator[str]:
    """The curves as a table."""
    yield f"| nodes | {' | '.join(str(nodes) for nodes in NODES)} |"
    yield "|---|" + "---|" * len(NODES)
    for curve in some:
        first = curve.points[0][1]
        yield f"| {curve.name} | {' | '.join(f'{rate / first:.1f}' for _, rate in curve.points)} |"


def picture(some: Sequence[Curve]) -> str:
    """The curves as SVG."""
    title = "Writes a second under one lock a namespace, simulated"
    return draw(Chart(title, "nodes, each with two cores", "writes a second, simulated", with_values=False), some)


def main() -> None:
    """Compare, print what follows, and draw it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=Path, default=POINTS)
    parser.add_argument("--picture", type=Path, default=PICTURE)
    asked = parser.parse_args()
    found = list(compared(json.loads(asked.points.read_text())))
    print("| delay | load | arrangement | measured, of one node | simulated, of one node |\n|---|---|---|---|---|")
    for one in found:
        print(f"| {one.delay} | {one.surface} | {one.arrangement} | {one.measured:.2f} | {one.simulated:.2f} |")
    some = curves()
    print("\nTimes one node, simulated:\n")
    print("\n".join(table(some)))
    asked.picture.write_text(picture(some))
    far = [one for one in found if not one.is_close]
    if far:
        sys.exit(f"the simulation is further off than {TOLERANCE:.0%} at {len(far)} of {len(found)} points")


if __name__ == "__main__":
    main()
