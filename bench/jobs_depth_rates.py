"""The second part of `make bench WHAT=jobs_depth`: rates, memory, start and pages of a server with a long queue.

Turns alternate between the server with the short queue and the one with the long queue. A turn submits jobs as the
SDK does, one a request, under generated keys, on 64 connections; then it claims and completes as many, so that the
queue keeps its length. What counts is the median of the ratios within a round.
"""

from __future__ import annotations

import http.client
import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import NamedTuple

import orjson

from bench.jobs_load import Connection, Submitter, post, run
from bench.jobs_measures import DONE, PARAMS
from bench.load_keys import ordered_key
from tests.harness.server import HOST, RunningServer

CONNECTIONS = 64
JOBS = 1_000
"""The number of jobs of one turn."""
TURNS = 5
"""Turns of each server in a round."""
TARGET = 0.9
"""The least rate of the long queue, as a share of the rate of the short one."""
STARTS, LOOKS = 3, 5
PAGES = (
    "/v1/jobs?limit=100",
    "/v1/jobs?limit=100&state=queued",
    "/v1/jobs?limit=100&state=queued&queue=queue-0&kind=kind-0",
    "/v1/jobs?limit=100&state=completed",
    "/v1/jobs?limit=100&state=scheduled",
    "/v1/jobs/queues",
    "/v1/jobs/dead?limit=100",
    "/metrics",
    "/v1/diagnose",
)
"""What the console and a monitor read."""


class Costs(NamedTuple):
    """What the jobs of some turns took: seconds, and microseconds of the server's processor."""

    seconds: float
    processor: float

    @property
    def rate(self) -> float:
        """Jobs a second."""
        return JOBS / self.seconds


Turn = dict[str, Costs]
SUBMIT, CYCLE = "submit", "claim and complete"


class Cycler(Connection):
    """Claims one job and completes it, as long as there are turns left."""

    def __init__(self, turns: Iterator[None]) -> None:
        super().__init__()
        self._turns = turns
        self._claim = post("/v1/jobs/claim", orjson.dumps({"worker_id": "bench", "max": 1}))
        self._is_claimed = False

    def begin(self) -> None:
        """Claim the next job, if one is left to take."""
        if next(self._turns, self) is self:
            self.stop()
            return
        self.transport.write(self._claim)

    def answered(self, body: bytes) -> None:
        """Complete what was claimed; then claim again."""
        self._is_claimed = not self._is_claimed
        if not self._is_claimed:
            self.begin()
            return
        [lease] = orjson.loads(body)["jobs"]
        report = orjson.dumps({"lease_token": lease["lease_token"], "result": DONE})
        self.transport.write(post(f"/v1/jobs/{lease['job_id']}/complete", report))


def job() -> bytes:
    """A submission as the SDK sends it."""
    key = {"idempotency_key": ordered_key().decode(), "generated_key": True}
    return orjson.dumps(key | {"kind": "kind-0", "queue": "queue-0", "params": PARAMS})


def processor_us(pid: int) -> float:
    """The processor time of all threads of a process so far."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1_000


async def measure(server: RunningServer) -> Turn:
    """One turn of a server."""
    requests = (post("/v1/jobs", job()) for _ in range(JOBS))
    submitting = await _cost(server, lambda _: Submitter(requests, b'"dedup":false'))
    turns = itertools.repeat(None, JOBS)
    return {SUBMIT: submitting, CYCLE: await _cost(server, lambda _: Cycler(turns))}


async def _cost(server: RunningServer, new: Callable[[int], Connection]) -> Costs:
    used, began = processor_us(server.pid), time.perf_counter()
    for connection in await run(server.port, new, CONNECTIONS):
        await connection.over
    return Costs(time.perf_counter() - began, processor_us(server.pid) - used)


async def measure_rates(
    servers: Mapping[int, RunningServer], rounds: int, tell: Callable[[str], None]
) -> dict[int, list[list[Turn]]]:
    """Round after round; by length of the queue, the turns of each. The first round warms caches."""
    found: dict[int, list[list[Turn]]] = {depth: [] for depth in servers}
    for number in range(rounds + 1):
        tell(f"round {number} of {rounds}: rates")
        turns: dict[int, list[Turn]] = {depth: [] for depth in servers}
        for _ in range(TURNS):
            for depth, server in servers.items():
                turns[depth].append(await measure(server))
        for depth in servers if number else ():
            found[depth].append(turns[depth])
    return found


def get(server: RunningServer, path: str) -> tuple[float, bytes]:
    """The milliseconds of a GET, and its body."""
    connection = http.client.HTTPConnection(HOST, server.port, timeout=60)
    began = time.perf_counter()
    connection.request("GET", path, headers={"Accept": "application/json"})
    answer = connection.getresponse()
    body = answer.read()
    elapsed = (time.perf_counter() - began) * 1_000
    connection.close()
    if answer.status != 200:
        raise SystemExit(f"GET {path}: {answer.status}")
    return elapsed, body


def queued(server: RunningServer) -> int:
    """The number of jobs that wait."""
    return int(json.loads(get(server, "/metrics")[1])["queue_depth"])


def memory_mib(server: RunningServer) -> float:
    """The resident memory of a server."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1_024


def start_seconds(server: RunningServer) -> float:
    """Start a server again; the time until it is ready."""
    server.stop()
    began = time.perf_counter()
    server.start()
    return time.perf_counter() - began


def print_rates(found: Mapping[int, list[list[Turn]]]) -> bool:
    """Rates, processor times and their ratios; whether the rates are within the target."""
    short, long = found
    print(f"\n| jobs | a second, {short:,} waiting | {long:,} waiting | ratio | of rounds | CPU µs | CPU µs | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    is_good = True
    for name in (SUBMIT, CYCLE):
        costs = {depth: [[turn[name] for turn in turns] for turns in found[depth]] for depth in found}
        rates = {depth: [median(one.rate for one in some) for some in costs[depth]] for depth in found}
        used = {depth: [median(one.processor for one in some) / JOBS for some in costs[depth]] for depth in found}
        ratios = sorted(b / a for a, b in zip(rates[short], rates[long], strict=True))
        processor = median(b / a for a, b in zip(used[short], used[long], strict=True))
        print(
            f"| {name} | {median(rates[short]):,.0f} | {median(rates[long]):,.0f} | {median(ratios):.2f} "
            f"| {ratios[0]:.2f} to {ratios[-1]:.2f} | {median(used[short]):.0f} | {median(used[long]):.0f} "
            f"| {processor:.2f} |"
        )
        is_good = is_good and median(ratios) >= TARGET
    print(f"\nTarget: rates of at least {TARGET}.")
    return is_good


def print_rest(servers: Mapping[int, RunningServer]) -> None:
    """Memory, time to start, and what the pages of the console take."""
    rows = {"memory after the rates, MiB": [f"{memory_mib(server):.0f}" for server in servers.values()]}
    starts: dict[int, list[float]] = {depth: [] for depth in servers}
    for _ in range(STARTS):
        for depth, server in servers.items():
            starts[depth].append(start_seconds(server))
    rows["start, s"] = [f"{median(times):.2f}" for times in starts.values()]
    rows["memory after a start, MiB"] = [f"{memory_mib(server):.0f}" for server in servers.values()]
    for path in PAGES:
        times = {depth: [get(server, path)[0] for _ in range(LOOKS)] for depth, server in servers.items()}
        rows[f"`{path}`, ms"] = [f"{median(some):.1f}" for some in times.values()]
    rows["memory after the pages, MiB"] = [f"{memory_mib(server):.0f}" for server in servers.values()]
    print("\n| | " + " | ".join(f"{depth:,} waiting" for depth in servers) + " |")
    print("|---|---|---|")
    for name, cells in rows.items():
        print(f"| {name} | {' | '.join(cells)} |")
