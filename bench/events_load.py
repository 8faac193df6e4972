"""A closed-loop generator of committed events: so many connections, each with so many batches under way.

It runs in a process of its own and prints one JSON object; `bench.events` starts it. Every connection has a project of
its own, so that nothing is pushed to anybody and only the commits are measured. Told to share one, which must be new,
they are all live on it and hear one another.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections import deque

from bench.events_wire import BrokenError, Drafts, Wire, faults_raised, kind_of, opened, sync_frame
from bench.load_keys import random_key
from bench.tally import new_loop

COMMITTED = b'"status":"committed"'
PATIENCE_SECONDS = 30.0
SETTLE_SECONDS = 0.2


class Tally:
    """What was counted while the window was open."""

    def __init__(self) -> None:
        self.is_open = False
        self.events = 0
        self.pushed = 0
        self.seconds: list[float] = []

    def figures(self, window: float) -> dict[str, float]:
        """What is printed: events a second, and how long a batch took."""
        times = sorted(self.seconds) or [0.0]
        return {
            "per_second": self.events / window,
            "pushed_per_second": self.pushed / window,
            "p50_ms": times[len(times) // 2] * 1_000,
            "p99_ms": times[len(times) * 99 // 100] * 1_000,
        }


class Submitter(Wire):
    """One connection that keeps so many batches under way; answers come in the order of the batches."""

    def __init__(self, client: str, project: str, asked: argparse.Namespace, tally: Tally) -> None:
        super().__init__(client, project)
        self._sync = sync_frame(project) if asked.shared else None
        self._drafts = Drafts(client, project)
        self._batch: int = asked.batch
        self._in_flight: int = asked.in_flight
        self._tally = tally
        self._sent: deque[float] = deque()

    def begin(self) -> None:
        """Send the first batches."""
        for _ in range(self._in_flight):
            self._send()

    def received(self, payload: bytes) -> None:
        """Count an answer and send the next batch."""
        kind = kind_of(payload)
        if kind == b"submit_events_result":
            if payload.count(COMMITTED) != self._batch:
                raise BrokenError(f"not all were committed: {payload[:500]!r}")
            began = self._sent.popleft()
            if self._tally.is_open:
                self._tally.events += self._batch
                self._tally.seconds.append(time.perf_counter() - began)
            if not self.is_over:
                self._send()
        elif kind == b"connected" and self._sync is not None:
            self.transport.write(self._sync)
        elif kind in (b"connected", b"sync_response"):
            self.ready.set_result(None)
        elif kind == b"event_broadcast":
            self._tally.pushed += self._tally.is_open
        else:
            raise BrokenError(f"unexpected: {payload[:500]!r}")

    def _send(self) -> None:
        frame = self._drafts.frame([random_key() for _ in range(self._batch)])
        self._sent.append(time.perf_counter())
        self.transport.write(frame)


async def measure(asked: argparse.Namespace) -> Tally:
    """Connect everybody, warm up, count."""
    tally = Tally()
    submitters = [
        Submitter(
            f"client-{number:04}", asked.project if asked.shared else f"{asked.project}-{number:04}", asked, tally
        )
        for number in range(asked.connections)
    ]
    with faults_raised():
        await opened(submitters, asked.port)
        await asyncio.wait_for(asyncio.gather(*(submitter.ready for submitter in submitters)), PATIENCE_SECONDS)
        for submitter in submitters:
            submitter.begin()
        await asyncio.sleep(asked.warm)
        tally.is_open = True
        await asyncio.sleep(asked.window)
        tally.is_open = False
        for submitter in submitters:
            submitter.is_over = True
        # What is still under way must not reach into the next measurement.
        await asyncio.sleep(SETTLE_SECONDS)
        for submitter in submitters:
            submitter.transport.close()
    return tally


def main() -> None:
    """Measure once and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--project", default="bench")
    parser.add_argument("--shared", action="store_true", help="one project for all connections")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--in-flight", type=int, default=1, help="batches under way on each connection")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--warm", type=float, default=0.5)
    parser.add_argument("--window", type=float, default=3.0)
    asked = parser.parse_args()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        tally = runner.run(measure(asked))
    print(json.dumps(tally.figures(asked.window)))


if __name__ == "__main__":
    main()
