"""How long an event takes from its submitter to its subscribers, seen with one clock.

Subscribers and submitter are in one process of their own: what is measured is the time from handing a submit to the
socket until a subscriber's socket has brought the broadcast. The project must be a new one, so that a subscriber is
live after its first page. It prints one JSON object; `bench.events` starts it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from contextlib import suppress

from bench.events_wire import BrokenError, Drafts, Wire, faults_raised, kind_of, opened, sync_frame
from bench.load_keys import random_key
from bench.tally import new_loop

AT_ONCE = 50
"""How many subscribers connect at the same time."""
ID_BYTES = 36
PATIENCE_SECONDS = 30.0


class Times:
    """When each event was submitted, how long its commit took, and how long each receipt."""

    def __init__(self, expected: int) -> None:
        self.sent: dict[bytes, float] = {}
        self.committed: list[float] = []
        self.received: list[float] = []
        self.is_complete = asyncio.Event()
        self._expected = expected

    def receipt(self, event_id: bytes, now: float) -> None:
        """One subscriber has one event."""
        self.received.append(now - self.sent[event_id])
        if len(self.received) == self._expected:
            self.is_complete.set()

    def figures(self) -> dict[str, float]:
        """What is printed, in milliseconds; `missing` counts receipts that never came."""
        commits, receipts = sorted(self.committed) or [0.0], sorted(self.received) or [0.0]
        return {
            "commit_p50_ms": commits[len(commits) // 2] * 1_000,
            "p50_ms": receipts[len(receipts) // 2] * 1_000,
            "p99_ms": receipts[len(receipts) * 99 // 100] * 1_000,
            "missing": self._expected - len(self.received),
        }


class Subscriber(Wire):
    """Live on the project; notes when a broadcast comes."""

    def __init__(self, client: str, project: str, times: Times) -> None:
        super().__init__(client, project)
        self._sync = sync_frame(project)
        self._times = times

    def received(self, payload: bytes) -> None:
        """A broadcast, or a step towards being live."""
        now = time.perf_counter()
        kind = kind_of(payload)
        if kind == b"event_broadcast":
            at = payload.index(b'"id":"') + 6
            self._times.receipt(payload[at : at + ID_BYTES], now)
        elif kind == b"connected":
            self.transport.write(self._sync)
        elif kind == b"sync_response":
            self.ready.set_result(None)
        else:
            raise BrokenError(f"unexpected: {payload[:500]!r}")


class Submitter(Wire):
    """Submits one event at a time."""

    def __init__(self, client: str, project: str, times: Times) -> None:
        super().__init__(client, project)
        self._drafts = Drafts(client, project)
        self._times = times
        self._sent_at = 0.0

    def submit(self) -> None:
        """One event."""
        key = random_key()
        frame = self._drafts.frame([key])
        self._sent_at = self._times.sent[key] = time.perf_counter()
        self.transport.write(frame)

    def received(self, payload: bytes) -> None:
        """The answer: by now the event is committed."""
        kind = kind_of(payload)
        if kind == b"connected":
            self.ready.set_result(None)
        elif kind == b"submit_events_result" and b'"status":"committed"' in payload:
            self._times.committed.append(time.perf_counter() - self._sent_at)
        else:
            raise BrokenError(f"unexpected: {payload[:500]!r}")


async def measure(asked: argparse.Namespace) -> dict[str, float]:
    """Make everybody live, submit at a steady pace, wait for the last receipt."""
    times = Times(asked.events * asked.subscribers)
    subscribers = [Subscriber(f"reader-{number}", asked.project, times) for number in range(asked.subscribers)]
    submitter = Submitter("writer", asked.project, times)
    with faults_raised():
        for at in range(0, len(subscribers), AT_ONCE):
            await go_live(subscribers[at : at + AT_ONCE], asked.port)
        await go_live([submitter], asked.port)
        began = time.perf_counter()
        for number in range(asked.events):
            await asyncio.sleep(max(0.0, began + number / asked.pace - time.perf_counter()))
            submitter.submit()
        with suppress(TimeoutError):
            await asyncio.wait_for(times.is_complete.wait(), PATIENCE_SECONDS)
        for connection in (*subscribers, submitter):
            connection.is_over = True
            connection.transport.close()
    return times.figures()


async def go_live(some: Sequence[Wire], port: int) -> None:
    """Connect and wait until each is ready."""
    await opened(some, port)
    await asyncio.wait_for(asyncio.gather(*(one.ready for one in some)), PATIENCE_SECONDS)


def main() -> None:
    """Measure once and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--project", required=True)
    parser.add_argument("--subscribers", type=int, required=True)
    parser.add_argument("--events", type=int, default=60)
    parser.add_argument("--pace", type=float, default=20.0, help="events a second")
    asked = parser.parse_args()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        print(json.dumps(runner.run(measure(asked))))


if __name__ == "__main__":
    main()
