"""Jobs as the load generator sends them: submissions, and workers that claim and complete."""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterator

from bench.load_keys import BODY, random_key
from bench.load_loop import BrokenError
from bench.load_sources import HttpSource
from bench.load_wires import ask, post

KNOWN_JOBS = 1_000
"""Stored keys that are repeated in turn: a single one would measure how a database bears one hot row."""
FILL_JOBS = 100
FRESH, KNOWN = b'"dedup":false', b'"dedup":true'
_JOB = b'{"idempotency_key":"%s","kind":"clicked","params":' + BODY + b"}"


def fresh_jobs(count: int) -> Iterator[bytes]:
    """As many, each under a key of its own."""
    return (_JOB % random_key() for _ in range(count))


def fill_jobs(port: int, count: int) -> None:
    """Queue as many, in batches."""
    left = fresh_jobs(count)
    while some := list(itertools.islice(left, FILL_JOBS)):
        ask(port, "POST", "/v1/jobs/batch", b'{"jobs":[%s]}' % b",".join(some))


class JobSubmits(HttpSource):
    """One job a request, under a fresh key or under stored ones in turn."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self._are_known = asked.keys == "repeated"
        self._word = KNOWN if self._are_known else FRESH
        self._again: Iterator[bytes] = iter(())
        sample = _JOB % random_key()
        self._head = post(f"{asked.base}/v1/jobs", sample)[: -len(sample)]

    def prepare(self, port: int) -> None:
        """Store what is to be repeated."""
        if self._are_known:
            jobs = list(fresh_jobs(KNOWN_JOBS))
            for job in jobs:
                ask(port, "POST", "/v1/jobs", job)
            self._again = itertools.cycle([self._head + job for job in jobs])

    def request(self, connection: int) -> bytes:
        """One submission."""
        return next(self._again) if self._are_known else self._head + _JOB % random_key()

    def answered(self, connection: int, answer: bytes) -> int:
        """It must say whether the key was known."""
        if answer[9:12] != b"200" or self._word not in answer:
            raise BrokenError(f"not {self._word!r}: {answer[:500]!r}")
        return 1


class JobBatches(HttpSource):
    """Many jobs a request, each under a fresh key; a job is the unit."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self._batch: int = asked.batch

    def request(self, connection: int) -> bytes:
        """One batch."""
        return post("/v1/jobs/batch", b'{"jobs":[%s]}' % b",".join(fresh_jobs(self._batch)))

    def answered(self, connection: int, answer: bytes) -> int:
        """All of them must be new."""
        if answer[9:12] != b"200" or answer.count(FRESH) != self._batch:
            raise BrokenError(f"not {self._batch} times {FRESH!r}: {answer[:500]!r}")
        return self._batch


class JobCycles(HttpSource):
    """Claims jobs and completes them one by one, each connection as a worker; a completed job is the unit."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self._jobs = asked.jobs
        self._claims = [
            post("/v1/jobs/claim", json.dumps({"worker_id": f"worker-{number}", "max": asked.batch}).encode())
            for number in range(asked.connections)
        ]
        self._held: list[list[dict[str, str]]] = [[] for _ in self._claims]
        self._is_claiming = [False] * asked.connections
        self._is_empty = False

    def prepare(self, port: int) -> None:
        """Fill the queue."""
        fill_jobs(port, self._jobs)

    def request(self, connection: int) -> bytes | None:
        """Complete what is held, then claim."""
        held = self._held[connection]
        if held:
            job = held.pop()
            report = b'{"lease_token":"%s","result":{"ok":true}}' % job["lease_token"].encode()
            return post(f"/v1/jobs/{job['job_id']}/complete", report)
        if self._is_empty:
            return None
        self._is_claiming[connection] = True
        return self._claims[connection]

    def answered(self, connection: int, answer: bytes) -> int:
        """Take over what a claim gave, or count a completion."""
        body = answer[answer.index(b"\r\n\r\n") + 4 :]
        if answer[9:12] != b"200" or KNOWN in body:
            raise BrokenError(f"refused, or completed twice: {answer[:500]!r}")
        if not self._is_claiming[connection]:
            return 1
        self._is_claiming[connection] = False
        self._held[connection] = json.loads(body)["jobs"]
        self._is_empty = self._is_empty or not self._held[connection]
        return 0
