"""A closed-loop load generator for the ledger: so many clients, each on its own connection with one request under way.

Any answer that is not the expected one ends the run. It runs in a process of its own, prints one JSON object, and is
started by `bench.ledger`.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import time
from collections.abc import Callable, Iterator

from bench.jobs_load import run
from bench.jobs_measures import PATIENCE_SECONDS
from bench.ledger_grpc import GrpcClient
from bench.ledger_wire import Client, Draft, HttpClient, Request, Scope
from bench.tally import Tally, new_loop

WRITE, KEYED, BATCH, DUPLICATE = "write", "keyed", "batch", "duplicate"
MEASURES = {
    WRITE: "one operation, under the client's next sequence",
    KEYED: "one operation, under a fresh random key; the server gives the sequence",
    BATCH: "100 operations, under the client's next sequence",
    DUPLICATE: "one operation that was committed before, under the same sequence",
}
WIRES: dict[str, type[Client]] = {"http": HttpClient, "grpc": GrpcClient}
OPERATIONS = {WRITE: 1, KEYED: 1, BATCH: 100, DUPLICATE: 1}
REPEATED = 16
"""So many transactions of each client are repeated in turn."""
KEY_BYTES = 16
ENTITIES = 10**12
"""Entities are chosen by chance among so many: nearly every one is new."""


def drafts(measure: str, client: int, chance: random.Random) -> Iterator[Draft]:
    """The transactions of a client, without end."""
    for sequence in itertools.count(1):
        entities = [chance.randrange(ENTITIES) for _ in range(OPERATIONS[measure])]
        key = chance.randbytes(KEY_BYTES) if measure == KEYED else b""
        yield Draft(client, None if key else sequence, key, entities, measure == BATCH)


def requests(kind: type[Client], scope: Scope, measure: str, client: int) -> Iterator[Request]:
    """The same as they are sent."""
    found = drafts(measure, client, random.Random(client))
    return (Request(kind.content(scope, draft), kind.success) for draft in found)


async def prepared(asked: argparse.Namespace, tally: Tally) -> Callable[[int], Client]:
    """What makes a client by its number; what is to be repeated has been committed."""
    kind, scope = WIRES[asked.wire], Scope(asked.org, asked.vault)
    if asked.measure != DUPLICATE:
        return lambda client: kind(requests(kind, scope, asked.measure, client), tally)
    first = [
        list(itertools.islice(requests(kind, scope, DUPLICATE, client), REPEATED)) for client in range(asked.at_once)
    ]
    answers: list[list[bytes]] = [[] for _ in first]
    silent = Tally()
    opened = await run(asked.port, lambda client: kind(iter(first[client]), silent, answers[client]), asked.at_once)
    await asyncio.gather(*(connection.over for connection in opened))
    again = [
        [request._replace(expected=answer) for request, answer in zip(*pair, strict=True)]
        for pair in zip(first, answers, strict=True)
    ]
    return lambda client: kind(itertools.cycle(again[client]), tally)


async def measure(asked: argparse.Namespace) -> dict[str, float]:
    """One measure once."""
    tally = Tally()
    opened = await run(asked.port, await prepared(asked, tally), asked.at_once)
    ends = asyncio.gather(*(connection.over for connection in opened))
    await asyncio.wait([ends], timeout=asked.warm)
    tally.is_open, began = True, time.perf_counter()
    await asyncio.wait([ends], timeout=asked.window)
    tally.is_open, seconds = False, time.perf_counter() - began
    tally.is_over = True
    await asyncio.wait_for(ends, PATIENCE_SECONDS)
    return tally.figures(seconds)


def main() -> None:
    """Measure once and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", choices=sorted(MEASURES), required=True)
    parser.add_argument("--wire", choices=sorted(WIRES), required=True)
    parser.add_argument("--port", type=int, required=True, help="of this wire")
    parser.add_argument("--org", type=int, required=True)
    parser.add_argument("--vault", type=int, required=True)
    parser.add_argument("--at-once", type=int, default=64)
    parser.add_argument("--warm", type=float, default=0.5)
    parser.add_argument("--window", type=float, default=3.0)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        print(json.dumps(runner.run(measure(parser.parse_args()))))


if __name__ == "__main__":
    main()
