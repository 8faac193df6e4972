"""Connections for benches that measure one call at a time, or in an order of their own, on asyncio.

Requests are prepared bytes, and answers are looked through for one word. Any answer that is not the expected one ends
the run. Where a rate is measured, `bench.load` is the generator.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Self, TypeVar, cast

from bench.jobs_measures import ANSWERED, BULK_JOBS, KIND
from bench.load_keys import BODY, random_key
from bench.load_loop import HOST, BrokenError
from bench.tally import Tally

FRESH, KNOWN = b'"dedup":false', b'"dedup":true'
_JOB = b'{"idempotency_key":"%s","kind":"' + KIND.encode() + b'","params":' + BODY + b"}"
_LENGTH = b"\r\ncontent-length: "


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


__all__ = ["HOST", "BrokenError", "Connection", "Submitter", "batches", "fresh_jobs", "post", "run"]

C = TypeVar("C", bound=Connection)


async def run(port: int, new: Callable[[int], C], count: int) -> list[C]:
    """Open so many connections; each begins at once."""
    loop = asyncio.get_running_loop()
    opened: list[C] = []
    for number in range(count):
        _, connection = await loop.create_connection(partial(new, number), HOST, port)
        opened.append(connection)
    return opened
