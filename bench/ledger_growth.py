"""`make bench WHAT=proofs`: the cost of proofs from 1,000 to 1,000,000 blocks, and of state roots as keys grow.

Proofs are built in three ledgers: a short chain, a long one over the same keys, and a long one each of whose blocks
brought a key of its own. What the third costs more than the second is the depth of the state's tree.

Ledgers of each size are made through the engine, which takes minutes for the large ones; `--keep` says where they stay
for the next run. Every round measures each of them once at each measure, one after the other, so that a noisy machine
disturbs all of them alike; what counts is the median of the ratios within a round. Exit code 1 when a ratio of
processor times is above its target.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from bench import machine
from bench.curve import Chart, Curve, draw
from bench.ledger_costs import PROOF_MEASURES, ROOT_MEASURES, Cost, Measure
from bench.ledger_stores import Site, Size, ledger

BLOCKS = (1_000, 1_000_000)
KEYS = (1_000, 10_000, 100_000, 1_000_000)
KEYS_EACH = 1_000
"""Ledgers with many keys are made with few blocks."""
PROOF_TARGET, ROOT_TARGET = 2.0, 3.0

Costs = dict[tuple[str, Size], list[Cost]]
"""By measure and size, a cost for each round."""
PICTURE = Chart(
    "Processor time of a transaction with one operation, by keys in the state", "keys in the state", "CPU µs"
)


def measure_all(sites: Mapping[Size, Site], measures: Mapping[str, Measure], rounds: int) -> Costs:
    """Round after round; the first one warms caches and does not count."""
    costs: Costs = {}
    for number in range(rounds + 1):
        for name, measure in measures.items():
            for size, site in sites.items():
                told = f"round {number} of {rounds}: {name}, {size.blocks:,} blocks with {size.keys:,} keys"
                print(f"\r{told:<99}", end="", file=sys.stderr, flush=True)
                cost = measure(site, size, random.Random(number))
                if number:
                    costs.setdefault((name, size), []).append(cost)
    print(file=sys.stderr)
    return costs


def times(few: Sequence[Cost], many: Sequence[Cost]) -> Cost:
    """How many times more the larger one costs: the median of the ratios within a round."""
    pairs = list(zip(few, many, strict=True))
    return Cost(median(b.elapsed / a.elapsed for a, b in pairs), median(b.processor / a.processor for a, b in pairs))


def typical(some: Sequence[Cost]) -> Cost:
    """Medians."""
    return Cost(median(one.elapsed for one in some), median(one.processor for one in some))


def print_proofs(costs: Costs, sizes: Sequence[Size]) -> bool:
    """The table of proofs; whether both long chains are within the target."""
    print("| proof | blocks | keys | µs | times | CPU µs | times |")
    print("|---|---|---|---|---|---|---|")
    worst = dict.fromkeys(sizes, 0.0)
    for name in PROOF_MEASURES:
        for size in sizes:
            cost, ratio = typical(costs[name, size]), times(costs[name, sizes[0]], costs[name, size])
            worst[size] = max(worst[size], ratio.processor)
            print(
                f"| {name} | {size.blocks:,} | {size.keys:,} | {cost.elapsed:.0f} | {ratio.elapsed:.2f} "
                f"| {cost.processor:.0f} | {ratio.processor:.2f} |"
            )
    print(f"\nThe worst ratios of processor times (target: at most {PROOF_TARGET}):")
    for size in sizes[1:]:
        print(f"- {size.blocks:,} blocks, {size.keys:,} keys: {worst[size]:.2f}")
    print()
    return max(worst.values()) <= PROOF_TARGET


def print_roots(costs: Costs, sizes: Sequence[Size]) -> bool:
    """The table of state roots; whether the largest one is within the target."""
    print(f"| keys | {' | '.join(f'{name}, CPU µs | times' for name in ROOT_MEASURES)} |")
    print(f"|---|{'---|' * 2 * len(ROOT_MEASURES)}")
    for size in sizes:
        cells = []
        for name in ROOT_MEASURES:
            ratio = times(costs[name, sizes[0]], costs[name, size])
            cells.append(f"{typical(costs[name, size]).processor:.0f} | {ratio.processor:.2f}")
        print(f"| {size.keys:,} | {' | '.join(cells)} |")
    worst = max(times(costs[name, sizes[0]], costs[name, sizes[-1]]).processor for name in ROOT_MEASURES)
    print(f"\nThe worst ratio at {sizes[-1].keys:,} keys is {worst:.2f} (target: at most {ROOT_TARGET}).\n")
    return worst <= ROOT_TARGET


def curve_of(costs: Costs, sizes: Sequence[Size], name: str) -> Curve:
    """The processor times of a measure as a curve."""
    return Curve(name, [(size.keys, typical(costs[name, size]).processor) for size in sizes])


def opened(stack: ExitStack, folder: Path, sizes: Sequence[Size]) -> dict[Size, Site]:
    """A ledger for each size; one that has to be made is made first."""
    return {size: stack.enter_context(ledger(folder, size)) for size in sizes}


def main() -> None:
    """Measure, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--blocks", type=int, nargs=2, default=BLOCKS, help="of the short chain and of the long ones")
    parser.add_argument("--keys", type=int, nargs="+", default=KEYS, help="of the states, from small to large")
    parser.add_argument("--keep", type=Path, help="a folder for the ledgers, which are large")
    parser.add_argument("--picture", type=Path, help="where the curve is drawn, as SVG")
    asked = parser.parse_args()
    if any(keys % KEYS_EACH for keys in asked.keys):
        parser.error(f"keys are multiples of {KEYS_EACH}")
    short, long = asked.blocks
    chains = [Size(short), Size(long, among=short), Size(long)]
    states = [Size(keys // KEYS_EACH, KEYS_EACH) for keys in asked.keys]
    with ExitStack() as stack:
        folder = asked.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        proofs = measure_all(opened(stack, folder, chains), PROOF_MEASURES, asked.rounds)
        roots = measure_all(opened(stack, folder, states), ROOT_MEASURES, asked.rounds)
    is_flat = [print_proofs(proofs, chains), print_roots(roots, states)]
    for fact in machine.facts():
        print(f"- {fact}")
    if asked.picture is not None:
        asked.picture.write_text(draw(PICTURE, [curve_of(roots, states, name) for name in ROOT_MEASURES]))
    sys.exit(0 if all(is_flat) else 1)


if __name__ == "__main__":
    main()
