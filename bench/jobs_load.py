"""A closed-loop load generator for jobs over HTTP: so many connections, each with one request under way.

It does as little as possible for each request, because it shares two cores with the server that it measures: requests
are prepared bytes with a fresh key put in, and answers are looked through for one word. Any answer that is not the
expected one ends the run. It runs in a process of its own and prints one JSON object; `bench.jobs` starts it.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Self, TypeVar, cast

import orjson

from bench.jobs_measures import (
    ANSWERED,
    BULK,
    BULK_CALLERS,
    BULK_JOBS,
    CYCLE,
    DONE,
    DUPLICATE,
    KEYS,
    KIND,
    PATIENCE_SECONDS,
    SUBMIT,
    figures,
    options,
)
from bench.load_keys import BODY, random_key
from bench.tally import Tally, new_loop

HOST = "127.0.0.1"
FRESH, KNOWN = b'"dedup":false', b'"dedup":true'
_JOB = b'{"idempotency_key":"%s","kind":"' + KIND.encode() + b'","params":' + BODY + b"}"
_LENGTH = b"\r\ncontent-length: "


class BrokenError(Exception):
    """An answer that must not be: the figures would mean nothing."""


def post(path: str, body: bytes) -> bytes:
    """A whole request."""
    head = f"POST {path} HTTP/1.1\r\nhost: {HOST}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


def batches(jobs: Iterable[bytes]) -> Iterator[bytes]:
    """Requests with 100 jobs each."""
    left = iter(jobs)
    while batch := list(itertools.islice(left, BULK_JOBS)):
        yield post("/v1/jobs/batch", b'{"jobs":[%s]}' % b",".join(batch))


def fresh_jobs(count: int | None = None) -> Iterator[bytes]:
    """So many, or without end."""
    turns = itertools.repeat(None) if count is None else itertools.repeat(None, count)
    return (_JOB % random_key() for _ in turns)


class Connection(asyncio.Protocol):
    """One connection; whoever extends it says what to send first and what to do with an answer."""

    def __init__(self) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self.transport = cast(asyncio.WriteTransport, transport)
        self.begin()

    def begin(self) -> None:
        """Send the first request."""
        raise NotImplementedError

    def answered(self, body: bytes) -> None:
        """An answer with status 200 has come."""
        raise NotImplementedError

    def data_received(self, data: bytes) -> None:
        """Put an answer together; there is never more than one."""
        self._buffer += data
        head_end = self._buffer.find(b"\r\n\r\n")
        if head_end < 0:
            return
        start = self._buffer.find(_LENGTH, 0, head_end) + len(_LENGTH)
        length = int(self._buffer[start : self._buffer.find(b"\r", start)])
        if len(self._buffer) < head_end + 4 + length:
            return
        status, body = self._buffer[9:12], self._buffer[head_end + 4 :]
        self._buffer = b""
        try:
            if status != ANSWERED:
                raise BrokenError(f"{status!r}: {body[:500]!r}")
            self.answered(body)
        except Exception as broken:  # noqa: BLE001 - whoever waits for the end hears of it
            self._end(broken)

    def connection_lost(self, exc: Exception | None) -> None:
        """The server hung up, unless the run is over."""
        self._end(BrokenError("the server closed a connection"))

    def stop(self) -> None:
        """No more requests."""
        self._end(None)

    def _end(self, broken: Exception | None) -> None:
        if not self.over.done():
            if broken is None:
                self.over.set_result(None)
            else:
                self.over.set_exception(broken)
        self.transport.close()


class Submitter(Connection):
    """Sends one request after another, until there are none or the run is over; each answer holds a word so often."""

    def __init__(self, requests: Iterator[bytes], word: bytes, often: int = 1, tally: Tally | None = None) -> None:
        super().__init__()
        self._tally = Tally() if tally is None else tally
        self._requests = requests
        self._word = word
        self._often = often
        self._sent_at = 0.0

    @classmethod
    def of_batches(cls, requests: Iterator[bytes], tally: Tally | None = None) -> Self:
        """For batches of new jobs."""
        return cls(requests, FRESH, BULK_JOBS, tally)

    def begin(self) -> None:
        """Send the next request, if there is one."""
        request = next(self._requests, None)
        if request is None:
            self.stop()
            return
        self._sent_at = time.perf_counter()
        self.transport.write(request)

    def answered(self, body: bytes) -> None:
        """Count it."""
        if body.count(self._word) != self._often:
            raise BrokenError(f"not {self._often} times {self._word!r}: {body[:500]!r}")
        self._tally.count(ANSWERED, time.perf_counter() - self._sent_at)
        if self._tally.is_over:
            self.stop()
        else:
            self.begin()


class Worker(Connection):
    """Claims, completes what it got, and claims again, until there is nothing left or the run is over."""

    def __init__(self, tally: Tally, claims: int, number: int) -> None:
        super().__init__()
        self._tally = tally
        self._claim = post("/v1/jobs/claim", orjson.dumps({"worker_id": f"worker-{number}", "max": claims}))
        self._held: list[dict[str, Any]] = []
        self._is_claiming = False
        self._claimed_at = 0.0

    def begin(self) -> None:
        """Claim."""
        self._is_claiming = True
        self._claimed_at = time.perf_counter()
        self.transport.write(self._claim)

    def answered(self, body: bytes) -> None:
        """Go on with what is held."""
        if self._is_claiming:
            self._is_claiming = False
            self._held = orjson.loads(body)["jobs"]
            if not self._held:
                self.stop()
                return
        else:
            if KNOWN in body:
                raise BrokenError(f"a job was completed twice: {body[:500]!r}")
            self._tally.count(ANSWERED, time.perf_counter() - self._claimed_at)
        if self._held:
            job = self._held.pop()
            report = orjson.dumps({"lease_token": job["lease_token"], "result": DONE})
            self.transport.write(post(f"/v1/jobs/{job['job_id']}/complete", report))
        elif self._tally.is_over:
            self.stop()
        else:
            self.begin()


C = TypeVar("C", bound=Connection)


async def run(port: int, new: Callable[[int], C], count: int) -> list[C]:
    """Open so many connections; each begins at once."""
    loop = asyncio.get_running_loop()
    opened: list[C] = []
    for number in range(count):
        _, connection = await loop.create_connection(partial(new, number), HOST, port)
        opened.append(connection)
    return opened


async def prefill(port: int, jobs: int) -> None:
    """Queue so many."""
    requests = batches(fresh_jobs(jobs))
    opened = await run(port, lambda _: Submitter.of_batches(requests), BULK_CALLERS)
    await asyncio.gather(*(connection.over for connection in opened))


async def prepared(asked: argparse.Namespace, tally: Tally) -> tuple[Callable[[int], Connection], int, int]:
    """What a connection does, how many there are, and how many jobs an answer stands for."""
    if asked.measure == CYCLE:
        await prefill(asked.port, asked.jobs)
        return partial(Worker, tally, asked.claims), asked.at_once, 1
    if asked.measure == BULK:
        bulks = batches(fresh_jobs())
        return (lambda _: Submitter.of_batches(bulks, tally)), BULK_CALLERS, BULK_JOBS
    if asked.measure == DUPLICATE:
        known = [post("/v1/jobs", job) for job in fresh_jobs(KEYS)]
        first = iter(known)
        opened = await run(asked.port, lambda _: Submitter(first, FRESH), asked.at_once)
        await asyncio.gather(*(connection.over for connection in opened))
        again = itertools.cycle(known)
        return (lambda _: Submitter(again, KNOWN, tally=tally)), asked.at_once, 1
    assert asked.measure == SUBMIT
    singles = (post("/v1/jobs", job) for job in fresh_jobs())
    return (lambda _: Submitter(singles, FRESH, tally=tally)), asked.at_once, 1


async def measure(asked: argparse.Namespace) -> dict[str, float]:
    """One measure once; when jobs run out before the window ends, it ended with the last one."""
    tally = Tally()
    new, count, each = await prepared(asked, tally)
    opened = await run(asked.port, new, count)
    ends = asyncio.gather(*(connection.over for connection in opened))
    await asyncio.sleep(asked.warm)
    tally.is_open, began = True, time.perf_counter()
    await asyncio.wait([ends], timeout=asked.window)
    tally.is_open, seconds = False, time.perf_counter() - began
    tally.is_over = True
    await asyncio.wait_for(ends, PATIENCE_SECONDS)
    if not tally.seconds:
        raise SystemExit("the jobs ran out before the window opened")
    return figures(tally, seconds, each)


def main() -> None:
    """Measure once and print it."""
    parser = options(__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--claims", type=int, default=1, help="jobs a claim")
    with asyncio.Runner(loop_factory=new_loop) as runner:
        print(json.dumps(runner.run(measure(parser.parse_args()))))


if __name__ == "__main__":
    main()
