"""`make bench WHAT=jobs_depth`: what jobs cost with 1,000 and with 1,000,000 queued jobs, in one alternating run.

Two servers, one with a short queue and one with a long one, both filled over HTTP with jobs of several kinds, queues
and priorities. Every round claims the same number of jobs from each in each of five ways, one job a claim; they are
completed and replaced afterwards, so that the queues keep their lengths. Two costs are told: the time that the claims
took with 64 connections, and the processor time that the server spent on them. What counts is the median of the ratios
within a round. Exit code 1 when a ratio of processor times is above the target. It reads /proc, so it needs Linux.

Then come rates, memory, start and pages, on queues whose jobs stand in one line (`jobs_depth_rates`). ONLY=claims or
ONLY=rates measures one of the parts. KEEP=FOLDER keeps the queues for the next run: to fill the long ones takes
minutes. All settings have their defaults, but for the length of the queue, so that more can be submitted to a queue of
1,000,000.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

import orjson

from bench import machine
from bench.jobs_depth_rates import measure_rates, print_rates, print_rest, processor_us, queued
from bench.jobs_load import Connection, Submitter, batches, post, run
from bench.jobs_measures import BULK_CALLERS, BULK_JOBS, DONE, PARAMS
from bench.jobs_stores import POSTGRES
from bench.load_keys import ordered_key
from bench.tally import new_loop
from tests.harness.postgres.cluster import Cluster
from tests.harness.server import RunningServer

SHORT, LONG = 1_000, 1_000_000
TARGET = 1.5
CLAIMS = 100
TURNS = 4
"""So often the claims of one measurement are made, with a queue of full length each time."""

CONNECTIONS = 64
KINDS, QUEUES, PRIORITIES = 2, 2, 10
LAST_JOBS = 200
LAST = "last"
"""A kind whose jobs stand at the very end of the line: whoever looks through what waits before them is found out."""

Job = dict[str, Any]


class Shape(NamedTuple):
    """One way to claim."""

    name: str
    filters: Mapping[str, Sequence[str]]

    @property
    def request(self) -> bytes:
        """A claim of one job."""
        return post("/v1/jobs/claim", orjson.dumps({"worker_id": "bench", "max": 1} | dict(self.filters)))


SHAPES = (
    Shape("anything", {}),
    Shape("of one queue", {"queues": ["queue-1"]}),
    Shape("of one kind", {"kinds": ["kind-1"]}),
    Shape("of one kind in one queue", {"kinds": ["kind-1"], "queues": ["queue-1"]}),
    Shape("of a kind that is last in line", {"kinds": [LAST]}),
)


class Cost(NamedTuple):
    """What claims cost, in microseconds."""

    elapsed: float
    processor: float


Part = Callable[[asyncio.Runner, Mapping[int, RunningServer], int], bool]
"""Measures one part on filled servers, and tells whether the figures are within the target."""

Costs = dict[tuple[str, int], list[Cost]]
"""By shape and length of the queue, a cost for each round."""


class Sender(Connection):
    """A connection that stays open, sends what it is given, and keeps the answers."""

    def begin(self) -> None:
        """Wait for something to send."""

    def work_off(self, requests: Iterator[bytes], answers: list[bytes]) -> asyncio.Future[None]:
        """Send what is left of these, one after another."""
        self._requests, self._answers = requests, answers
        self.over = asyncio.get_running_loop().create_future()
        self._next()
        return self.over

    def answered(self, body: bytes) -> None:
        """Keep it and go on."""
        self._answers.append(body)
        self._next()

    def _next(self) -> None:
        request = next(self._requests, None)
        if request is None:
            self.over.set_result(None)
        else:
            self.transport.write(request)


class Candidate(NamedTuple):
    """One of the servers, and the connections to it."""

    server: RunningServer
    senders: list[Sender]

    async def ask(self, requests: Iterator[bytes]) -> list[bytes]:
        """Send them all; the answers, in no order."""
        answers: list[bytes] = []
        await asyncio.gather(*(sender.work_off(requests, answers) for sender in self.senders))
        return answers


def job(kind: str, queue: str, priority: int) -> Job:
    """A job for one place of the line."""
    key = ordered_key().decode()
    place = {"kind": kind, "queue": queue, "priority": priority}
    return {"idempotency_key": key, "generated_key": True, **place, "params": PARAMS}


def jobs(depth: int) -> Iterator[Job]:
    """A queue of this length: every mixture of kind, queue and priority, and at the end those that are last."""
    mixtures = itertools.cycle(itertools.product(range(PRIORITIES), range(QUEUES), range(KINDS)))
    for priority, queue, kind in itertools.islice(mixtures, depth - LAST_JOBS):
        yield job(f"kind-{kind}", f"queue-{queue}", priority)
    for _ in range(LAST_JOBS):
        yield job(LAST, "queue-0", PRIORITIES - 1)


async def fill(port: int, some: Iterator[Job]) -> None:
    """Submit them."""
    requests = batches(orjson.dumps(one) for one in some)
    opened = await run(port, lambda _: Submitter.of_batches(requests), BULK_CALLERS)
    await asyncio.gather(*(connection.over for connection in opened))


async def turn(one: Candidate, shape: Shape) -> Cost:
    """Claim, and put everything back as it was; what the claims cost together."""
    pid = one.server.pid
    used, began = processor_us(pid), time.perf_counter()
    answers = await one.ask(itertools.repeat(shape.request, CLAIMS))
    elapsed, used = (time.perf_counter() - began) * 1_000_000, processor_us(pid) - used
    held = [lease for answer in answers for lease in orjson.loads(answer)["jobs"]]
    if len(held) != CLAIMS:
        raise SystemExit(f"{CLAIMS} claims got {len(held)} jobs: the figures would mean nothing")
    await one.ask(map(report, held))
    await fill(one.server.port, (job(lease["kind"], lease["queue"], lease["priority"]) for lease in held))
    return Cost(elapsed, used)


def report(held: Job) -> bytes:
    """Completes one."""
    body = {"lease_token": held["lease_token"], "result": DONE}
    return post(f"/v1/jobs/{held['job_id']}/complete", orjson.dumps(body))


async def measure(server: RunningServer, shape: Shape) -> Cost:
    """One shape once; what one claim cost. Connections are new: the server closes those that are idle for long."""
    one = Candidate(server, await run(server.port, lambda _: Sender(), CONNECTIONS))
    turns = [await turn(one, shape) for _ in range(TURNS)]
    for sender in one.senders:
        sender.transport.close()
    return Cost(mean(cost.elapsed for cost in turns) / CLAIMS, mean(cost.processor for cost in turns) / CLAIMS)


def tell(what: str) -> None:
    """Say what is going on."""
    print(f"\r{what:<99}", end="", file=sys.stderr, flush=True)


def line(depth: int) -> Iterator[Job]:
    """A queue of this length, all of whose jobs stand in one line."""
    return (job("kind-0", "queue-0", 4) for _ in range(depth))


async def fill_all(servers: Mapping[int, RunningServer], queue: Callable[[int], Iterator[Job]]) -> None:
    """Fill those that are empty."""
    for depth, server in servers.items():
        if (there := queued(server)) not in (0, depth):
            raise SystemExit(f"{there:,} jobs wait where {depth:,} should: take another folder")
        if not there:
            tell(f"queueing {depth:,} jobs")
            await fill(server.port, queue(depth))


async def measure_all(servers: Mapping[int, RunningServer], rounds: int) -> Costs:
    """Round after round."""
    costs: Costs = {}
    for number in range(rounds + 1):
        for shape, (depth, server) in itertools.product(SHAPES, servers.items()):
            tell(f"round {number} of {rounds}: {shape.name}, {depth:,} queued")
            cost = await measure(server, shape)
            if number:  # the first one warms caches
                costs.setdefault((shape.name, depth), []).append(cost)
    print(file=sys.stderr)
    return costs


def print_costs(costs: Costs, short: int, long: int) -> bool:
    """Medians, and ratios within a round; whether all ratios of processor times are within the target."""
    print(f"| claims | µs, {short:,} queued | µs, {long:,} queued | times | CPU µs | CPU µs | times |")
    print("|---|---|---|---|---|---|---|")
    worst = 0.0
    for shape in SHAPES:
        few, many = costs[shape.name, short], costs[shape.name, long]
        elapsed = median(b.elapsed / a.elapsed for a, b in zip(few, many, strict=True))
        processor = median(b.processor / a.processor for a, b in zip(few, many, strict=True))
        worst = max(worst, processor)
        print(
            f"| {shape.name} | {median(a.elapsed for a in few):.0f} | {median(b.elapsed for b in many):.0f} "
            f"| {elapsed:.2f} | {median(a.processor for a in few):.0f} | {median(b.processor for b in many):.0f} "
            f"| {processor:.2f} |"
        )
    print(f"\nThe worst ratio of processor times is {worst:.2f} (target: at most {TARGET}).")
    return worst <= TARGET


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--short", type=int, default=SHORT)
    parser.add_argument("--long", type=int, default=LONG)
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--only", choices=("claims", "rates"))
    parser.add_argument("--keep", type=Path, help="a folder for the queues, which the next run finds")
    asked = parser.parse_args()
    if asked.short % BULK_JOBS or asked.long % BULK_JOBS or asked.short <= LAST_JOBS:
        parser.error(f"lengths are multiples of {BULK_JOBS}, above {LAST_JOBS}")
    parts: dict[str, Part] = {"claims": measure_claims, "rates": measure_rest}
    are_good = [run_part(asked, name, part) for name, part in parts.items() if asked.only in (None, name)]
    for fact in machine.facts():
        print(f"- {fact}")
    sys.exit(0 if all(are_good) else 1)


def run_part(asked: argparse.Namespace, name: str, measure_part: Part) -> bool:
    """Fill two servers, and measure; whether the figures are within the target."""
    with ExitStack() as running:
        folder = asked.keep or Path(running.enter_context(tempfile.TemporaryDirectory()))
        roomy = {"SEMEL_JOBS_MAX_QUEUE_DEPTH": str(2 * asked.long)}
        stores = [roomy, roomy]
        if asked.store == "postgres":
            clusters = [running.enter_context(Cluster(POSTGRES)) for _ in stores]
            stores = [roomy | {"SEMEL_STORE": cluster.url} for cluster in clusters]
        servers = {
            depth: running.enter_context(RunningServer(folder / name / str(depth), env=env))
            for depth, env in zip((asked.short, asked.long), stores, strict=True)
        }
        runner = running.enter_context(asyncio.Runner(loop_factory=new_loop))
        runner.run(fill_all(servers, jobs if name == "claims" else line))
        return measure_part(runner, servers, asked.rounds)


def measure_claims(runner: asyncio.Runner, servers: Mapping[int, RunningServer], rounds: int) -> bool:
    """The costs of claims."""
    return print_costs(runner.run(measure_all(servers, rounds)), *servers)


def measure_rest(runner: asyncio.Runner, servers: Mapping[int, RunningServer], rounds: int) -> bool:
    """Rates, memory, start and pages."""
    is_good = print_rates(runner.run(measure_rates(servers, rounds, tell)))
    print_rest(servers)
    return is_good


if __name__ == "__main__":
    main()
