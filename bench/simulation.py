"""A discrete simulation of nodes, lanes, locks and commits: how many writes a second a deployment can take.

Each node has a closed loop of connections and one lane. A batch takes what waits on its node, waits for the lock of its
namespace, works (round trips and statements), commits, and frees the lock; then its connections write again. Three
things make it wait: the lock, which all nodes of a namespace share; the log of the database, which is flushed by one
commit at a time while those that wait for it are flushed together; and the cores, which all processes share. Time is
counted in whole microseconds, and chance is seeded, so that the same parameters give the same figures everywhere.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

SECOND = 1_000_000
HALF_US = 100
"""The second half of the callers begins later by this time: those of one batch write while the other one commits."""
SPREAD = 0.2
"""Times of work and pauses differ by up to this share, so that nodes do not run in lockstep."""


class Deployment(NamedTuple):
    """What is simulated; times in microseconds."""

    nodes: int
    namespaces: int
    """Nodes are dealt out to them in turn."""
    connections: int
    """Of each node, each with one write under way."""
    batch_us: int
    """Waiting of one batch outside of the cores, while it holds the lock: round trips to the database."""
    batch_cpu_us: int
    """Work of one batch on a core, while it holds the lock."""
    write_cpu_us: int
    """Work of one write on a core: parse, decide, insert, answer; of node, database and client together."""
    sync_us: int
    """One sync of the log; other commits wait for it and then share the next one."""
    delay_us: int = 0
    """Time that a commit takes besides, which overlaps with that of others: a standby, a zone, `commit_delay`."""
    cores: int = 2
    most_writes: int = 512
    """Limit on the writes of one batch."""


class SimulatedRun(NamedTuple):
    """What came of it."""

    per_second: float
    writes_a_commit: float
    lock_share: float
    """The share of the time for which the busiest lock was held."""
    core_share: float
    """The share of the cores that was busy."""


@dataclass
class _Queue:
    """Waits in order for one of some places."""

    places: int
    used: int = 0
    busy_us: int = 0
    waiting: deque[Callable[[], None]] = field(default_factory=deque)

    def take(self, begin: Callable[[], None]) -> None:
        if self.used < self.places:
            self.used += 1
            begin()
        else:
            self.waiting.append(begin)

    def free(self) -> None:
        if self.waiting:
            self.waiting.popleft()()
        else:
            self.used -= 1


class _Simulation:
    def __init__(self, deployment: Deployment, seed: int) -> None:
        self.of = deployment
        self.now = 0
        self._random = random.Random(seed)
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0
        self.cores = _Queue(deployment.cores)
        self.locks = [_Queue(1) for _ in range(deployment.namespaces)]
        self._is_syncing = False
        self._to_sync: list[Callable[[], None]] = []
        self.waiting = [0] * deployment.nodes
        self._is_running = [False] * deployment.nodes
        self.writes = self.commits = 0

    def later(self, pause_us: float, do: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (self.now + max(0, round(pause_us)), self._number, do))

    def run(self, until_us: int) -> None:
        half = self.of.connections // 2
        for node in range(self.of.nodes):
            first_us = self._random.random() * 1_000
            self.later(first_us, partial(self.arrive, node, self.of.connections - half))
            self.later(first_us + HALF_US, partial(self.arrive, node, half))
        while self._events and self._events[0][0] <= until_us:
            self.now, _, do = heapq.heappop(self._events)
            do()

    def arrive(self, node: int, writes: int) -> None:
        """Callers of a node write: at first, and when they were answered."""
        self.waiting[node] += writes
        self.begin(node)

    def varied(self, pause_us: float) -> float:
        return pause_us * (1 + SPREAD * (2 * self._random.random() - 1))

    def work(self, cpu_us: float, then: Callable[[], None]) -> None:
        """Work on a core, in turn with all others."""

        def begin() -> None:
            time_us = round(self.varied(cpu_us))
            self.cores.busy_us += time_us
            self.later(time_us, end)

        def end() -> None:
            self.cores.free()
            then()

        self.cores.take(begin)

    def begin(self, node: int) -> None:
        """Gather a batch of a node, if none runs and something waits; what comes later waits for the next one."""
        if self._is_running[node] or not self.waiting[node]:
            return
        self._is_running[node] = True
        lock = self.locks[node % self.of.namespaces]
        size = min(self.waiting[node], self.of.most_writes)
        self.waiting[node] -= size
        lock.take(partial(self.hold, node, lock, size))

    def hold(self, node: int, lock: _Queue, size: int) -> None:
        """The lock is held: decide, and send the changes."""
        began = self.now

        def commit() -> None:
            self.later(self.varied(self.of.batch_us), lambda: self.sync(committed))

        def committed() -> None:
            lock.busy_us += self.now - began
            lock.free()
            self.writes += size
            self.commits += 1
            self._is_running[node] = False
            self.work(self.of.write_cpu_us * size / 2, partial(self.arrive, node, size))
            self.begin(node)

        self.work(self.of.batch_cpu_us + self.of.write_cpu_us * size / 2, commit)

    def sync(self, then: Callable[[], None]) -> None:
        """Flush the log; a commit that finds a flush under way shares the next one with all that wait."""
        self._to_sync.append(then)
        if not self._is_syncing:
            self._flush()

    def _flush(self) -> None:
        self._is_syncing = True
        delay_us = self.of.delay_us
        if delay_us:  # those that come meanwhile share the flush
            self.later(delay_us, self._flush_all)
        else:
            self._flush_all()

    def _flush_all(self) -> None:
        shared, self._to_sync = self._to_sync, []

        def flushed() -> None:
            self._is_syncing = False
            if self._to_sync:
                self._flush()
            for then in shared:
                then()

        self.later(self.of.sync_us, flushed)


def simulate(deployment: Deployment, seconds: float = 20.0, seed: int = 1) -> SimulatedRun:
    """Run a deployment for this simulated time."""
    one = _Simulation(deployment, seed)
    until_us = round(seconds * SECOND)
    one.run(until_us)
    return SimulatedRun(
        per_second=one.writes / seconds,
        writes_a_commit=one.writes / max(1, one.commits),
        lock_share=max(lock.busy_us for lock in one.locks) / until_us,
        core_share=one.cores.busy_us / until_us / deployment.cores,
    )
