"""`make bench WHAT=deltas_growth`: pushes, pulls and starts with 1,000 to 1,000,000 stored deltas, alternating.

Stores are filled through the server's own surface, which takes minutes for the large one; `--keep` says where they stay
for the next run. Every round measures each shape once in each store, one after the other, so that a noisy machine
disturbs all of them alike. Each time the server has just been started, and the smaller stores have been put back as
they were, because a measurement adds thousands of deltas; the largest is put back once a round. What counts is the
median of the ratios within a round. Exit code 1 when a target is missed. It reads /proc, so it needs Linux.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import sys
import tempfile
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, TypeVar

from bench import deltas_identity, machine
from bench.deltas_load import (
    BATCH,
    CLIENTS,
    PAGE,
    PAGES,
    PUSHES,
    SHAPES,
    SINGLE,
    Pusher,
    Rate,
    Request,
    Shape,
    measure_pulls,
    measure_pushes,
)
from bench.deltas_stores import Site, filled
from bench.deltas_wire import Author, filler, push, stored
from bench.jobs_depth import tell
from bench.jobs_load import run
from bench.memory import resident_mib
from bench.tally import new_loop

SIZES = (1_000, 100_000, 1_000_000)
SHARE_TARGETS = {SINGLE: 0.70, BATCH: 0.85}
"""Of the rate with the fewest deltas, with the most, by the deltas of a push."""
READY_TARGET = 5.0
SAMPLE = 10_000
"""Stored deltas that are pushed once more after a restart."""
BEFORE_DEATH = 10
"""Pushes of 100 that a server takes before it ends, so that there is something to recover."""
STOPPED, KILLED, COLD = "stopped", "killed", "killed, files not in memory"


class Start(NamedTuple):
    """One start of a server: seconds until it is ready, and until it has answered a push; and its memory then."""

    ready: float
    pushed: float
    mib: float


T = TypeVar("T")
Rates = dict[tuple[Shape | None, int], list[Rate]]
"""By shape, or None for pulls, and size: one for each round."""
Starts = dict[tuple[str, int], list[Start]]
"""By how the server had ended, and size."""


def done(work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(work)


def measure_rates(sites: Mapping[int, Site], shapes: Sequence[Shape], rounds: int, scale: float) -> Rates:
    """Round after round; the first one warms caches and does not count."""
    rates: Rates = {}
    for number in range(rounds + 1):
        for shape, (size, site) in itertools.product((*shapes, None), sites.items()):
            told = "pull" if shape is None else f"{shape.name}, {shape.batch} a push"
            tell(f"round {number} of {rounds}: {told}, {size:,} stored")
            if size != max(sites) or shape is shapes[0]:
                site.restore()
            site.settle()
            with site.server as server:
                if shape is None:
                    rate = done(measure_pulls(server, PAGES))
                else:
                    rate = done(measure_pushes(server, size, shape, scale))
            if number:
                rates.setdefault((shape, size), []).append(rate)
    print(file=sys.stderr)
    return rates


def measure_starts(sites: Mapping[int, Site], rounds: int) -> Starts:
    """Servers that end in each way after some pushes, and start again."""
    starts: Starts = {}
    for number in range(1, rounds + 1):
        for way, (size, site) in itertools.product((STOPPED, KILLED, COLD), sites.items()):
            tell(f"round {number} of {rounds}: start, {way}, {size:,} stored")
            if size != max(sites):
                site.restore()
            site.server.start()
            done(push_all(site, new_pushes(BEFORE_DEATH, BATCH)))
            if way == STOPPED:
                site.server.stop()
            else:
                site.server.kill()
            if way == COLD:
                site.cool()
            starts.setdefault((way, size), []).append(start(site))
            site.server.stop()
    print(file=sys.stderr)
    return starts


def start(site: Site) -> Start:
    """Start a server and push to it."""
    request = new_pushes(1, 1)
    began = time.perf_counter()
    site.server.start()
    ready = time.perf_counter() - began
    done(push_all(site, request))
    return Start(ready, time.perf_counter() - began, resident_mib(site.server.pid))


def new_pushes(count: int, batch: int) -> Iterator[Request]:
    """Pushes of new rows by one client."""
    author = Author(b"starter")
    return iter(
        [Request(push(author.client, [author.new_row() for _ in range(batch)]), batch, 0) for _ in range(count)]
    )


async def push_all(site: Site, requests: Iterator[Request]) -> None:
    """Push them, one after another."""
    [pusher] = await run(site.server.port, lambda _: Pusher(), 1)
    await pusher.work_off(requests)
    pusher.transport.close()


def check_memory_of_ids(site: Site, sample: int) -> None:
    """After a restart, push a sample of what is stored once more: all of it is known, and nothing changes."""
    tell(f"{sample:,} of {site.deltas:,} stored deltas once more")
    numbers = random.Random(site.deltas).sample(range(site.deltas), min(sample, site.deltas))
    batches = [numbers[begin : begin + BATCH] for begin in range(0, len(numbers), BATCH)]
    again = (Request(push(filler(0), [stored(one) for one in some]), len(some), len(some)) for some in batches)
    with site.server:
        before = site.gauges()
        began = time.perf_counter()
        done(push_all(site, again))
        seconds = time.perf_counter() - began
        tell("pull all of it")
        all_of_it = done(measure_pulls(site.server, None))
        after = site.gauges()
    print(file=sys.stderr)
    if before != after or before["deltaCount"] != site.deltas or all_of_it.deltas != site.deltas:
        raise SystemExit(f"the log has changed or is not whole: {before}, {after}, {all_of_it.deltas} entries pulled")
    print(
        f"Of {site.deltas:,} stored deltas {len(numbers):,} were pushed once more after a restart, in {seconds:.1f} s: "
        f"every one a duplicate, and the log unchanged ({after}). Pulling all of it in pages of {PAGE:,} gave as many "
        f"entries, {all_of_it.per_second:,.0f} a second. The files have {site.bytes_on_disk() / 1024**2:,.0f} MiB.\n"
    )


def share(rates: Rates, shape: Shape | None, size: int, smallest: int) -> Rate:
    """Rate and processor time as shares of those with the fewest deltas: medians of the ratios within a round."""
    pairs = list(zip(rates[shape, smallest], rates[shape, size], strict=True))
    per_second = median(many.per_second / few.per_second for few, many in pairs)
    return Rate(per_second, median(many.processor_us / few.processor_us for few, many in pairs))


def print_rates(rates: Rates, sizes: Sequence[int]) -> bool:
    """The table of pushes and pulls; whether the pushes with the most deltas reach the target."""
    print("| what | a push | stored | deltas/s | share | lowest, highest | CPU µs a delta | times | pushes a sync |")
    print("|---|---|---|---|---|---|---|---|---|")
    worst = dict.fromkeys(SHARE_TARGETS, 1.0)
    for shape in dict.fromkeys(shape for shape, _ in rates):
        for size in sizes:
            some, beside = rates[shape, size], share(rates, shape, size, sizes[0])
            if shape is not None and not shape.is_extreme and size == sizes[-1]:
                worst[shape.batch] = min(worst[shape.batch], beside.per_second)
            among = sorted(one.per_second for one in some)
            together = [one.a_commit for one in some if one.a_commit is not None]
            print(
                f"| {f'pull from 0, pages of {PAGE:,}' if shape is None else shape.name} "
                f"| {'-' if shape is None else shape.batch} | {size:,} "
                f"| {median(among):,.0f} | {beside.per_second:.2f} | {among[0]:,.0f}, {among[-1]:,.0f} "
                f"| {median(one.processor_us for one in some):.0f} | {beside.processor_us:.2f} "
                f"| {f'{median(together):.1f}' if together else '-'} |"
            )
    told = " and ".join(
        f"{found:.2f} of {batch} (target: at least {SHARE_TARGETS[batch]})" for batch, found in worst.items()
    )
    print(f"\nThe worst share of pushes at {sizes[-1]:,}, without those from any time of the past, is {told}.\n")
    return all(found >= SHARE_TARGETS[batch] for batch, found in worst.items())


def print_starts(starts: Starts) -> bool:
    """The table of starts; whether all are within the target."""
    print("| server had been | stored | s until ready | s until a push is answered | slowest | MiB then |")
    print("|---|---|---|---|---|---|")
    for (way, size), some in starts.items():
        print(
            f"| {way} | {size:,} | {median(one.ready for one in some):.2f} | {median(one.pushed for one in some):.2f} "
            f"| {max(one.pushed for one in some):.2f} | {median(one.mib for one in some):.0f} |"
        )
    slowest = max(one.pushed for some in starts.values() for one in some)
    print(f"\nThe slowest start took {slowest:.2f} s (target: at most {READY_TARGET:.0f}).\n")
    return slowest <= READY_TARGET


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="stored deltas, from few to many")
    parser.add_argument("--shape", choices=sorted({shape.name for shape in SHAPES}), action="append", help="only these")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="so many times the pushes, and the turns, of a measurement"
    )
    parser.add_argument("--sample", type=int, default=SAMPLE, help="stored deltas that are pushed once more")
    parser.add_argument("--keep", type=Path, help="a folder for the stores, which are large")
    asked = parser.parse_args()
    shapes = [shape for shape in SHAPES if not asked.shape or shape.name in asked.shape]
    turns = max(1, round(deltas_identity.TURNS * asked.scale))
    is_met = [deltas_identity.print_costs(deltas_identity.measure(turns))]
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=asked.keep)))
        sites = {size: Site(size, filled(asked.keep or home, size), home / str(size)) for size in asked.sizes}
        for site in sites.values():
            site.restore()
        check_memory_of_ids(sites[max(sites)], asked.sample)
        is_met.append(print_starts(measure_starts(sites, asked.rounds)))
        is_met.append(print_rates(measure_rates(sites, shapes, asked.rounds, asked.scale), asked.sizes))
    pushes = ", ".join(f"{count * CLIENTS:,} pushes of {batch}" for batch, count in PUSHES.items())
    print(f"{CLIENTS} clients, each on its own connection with one request under way; {pushes}. Run on:")
    for fact in machine.facts():
        print(f"- {fact}")
    sys.exit(0 if all(is_met) else 1)


if __name__ == "__main__":
    main()
