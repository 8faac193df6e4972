"""What a failover run is judged by: what was answered stands in the streams once, whoever is asked.

An append that was answered is there exactly once, and a retry of it is told what the first answer was. One that was
refused as not stored is not there. One of which nothing is known, because it had no name to be repeated under, is there
at most once.
"""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import httpx

from tests.failover.clients import UnnamedOperation
from tests.harness.crash.verdict import Verdict
from tests.streams.crash.clients import Operation
from tests.streams.crash.verdict import read_all

READ_SECONDS = 60.0
TRIES = 200
PAUSE_SECONDS = 0.1
REPEATED = 20
"""How many appends a judgement repeats on each node, and as many of those that were interrupted."""
PLACED = 3
"""In how many places of a stream it reads on from an answered offset,"""
RECENT = 500
"""which are among the last so many."""


ACKNOWLEDGED, INTERRUPTED = "writes acknowledged", "interrupted"
PUT_OFF = "requests put off when it was over"


def judge_failovers(
    verdict: Verdict, urls: Sequence[str], operations: Iterable[Operation], chance: random.Random
) -> None:
    """Repeat some of them on every node, then read every stream there from its beginning; again after each round."""
    by_stream: dict[str, list[Operation]] = defaultdict(list)
    counts: Counter[str] = Counter()
    for operation in operations:
        by_stream[operation.stream].append(operation)
        _count(operation, counts)
    for name, number in counts.items():
        verdict.counts[name] = number
    for url in urls:
        patient = _Patient()
        with httpx.Client(base_url=url, timeout=READ_SECONDS, transport=patient) as http:
            _repeat_some(http, by_stream, chance, verdict)
            for stream, done in by_stream.items():
                _judge_stream(http, stream, done, verdict)
        verdict.count(PUT_OFF, patient.refused)


def _count(operation: Operation, counts: Counter[str]) -> None:
    counts[ACKNOWLEDGED] += bool(operation.answers)
    counts[INTERRUPTED] += operation.attempts > len(operation.answers)
    if isinstance(operation, UnnamedOperation):
        counts["unknown"] += operation.is_unknown
        counts["unknown by a node's word"] += operation.is_told_unknown
        counts["refused"] += operation.is_refused


def _repeat_some(
    http: httpx.Client, by_stream: Mapping[str, list[Operation]], chance: random.Random, found: Verdict
) -> None:
    """A key's retry is told the first answer; a number's only that it was stored before."""
    named = [one for done in by_stream.values() for one in done if one.headers and one.answers]
    interrupted = [one for one in named if one.attempts > len(one.answers)]
    for operation in (*_some(interrupted, chance), *_some(named, chance)):
        again = http.post(
            f"/v1/stream/{operation.stream}",
            content=operation.body,
            headers={"Content-Type": "application/json", **operation.headers},
        )
        agrees = again.status_code == 204
        if operation.is_keyed:
            told = (again.status_code, again.headers.get("Stream-Next-Offset", ""))
            agrees = told == operation.answers[0] and again.headers.get("Idempotency-Replayed") == "true"
        if not agrees:
            found.blame(f"differing: {operation.name}")


def _some(operations: Sequence[Operation], chance: random.Random) -> list[Operation]:
    return chance.sample(operations, min(REPEATED, len(operations)))


def _judge_stream(http: httpx.Client, stream: str, done: Sequence[Operation], found: Verdict) -> None:
    stored = read_all(http, stream)
    count = Counter(stored)
    for operation in done:
        times = count.pop(operation.name, 0)
        if times > 1:
            found.blame(f"doubled: {operation.name}")
        elif operation.answers and not times:
            found.blame(f"lost: {operation.name}")
        elif _contradicts(operation, times):
            found.blame(f"differing: {operation.name}")
    for name in sorted(count):
        found.blame(f"nobody has sent {name}")
    _judge_offsets(http, stream, stored, {operation.name: operation for operation in done}, found)


def _contradicts(operation: Operation, times: int) -> bool:
    """Whether it was told something that is not so, or two things."""
    if isinstance(operation, UnnamedOperation) and operation.is_refused:
        return times > 0
    if any(status not in (200, 204) for status, _ in operation.answers):
        return True
    return operation.is_keyed and len(set(operation.answers)) > 1


def _judge_offsets(
    http: httpx.Client, stream: str, stored: Sequence[str], done: Mapping[str, Operation], found: Verdict
) -> None:
    """Offsets that were answered rise with the places of their messages, and lie just behind them."""
    offsets = [(place, name, _offset_of(done[name])) for place, name in enumerate(stored) if name in done]
    told = [(place, name, offset) for place, name, offset in offsets if offset]
    for (_, _, before), (_, name, offset) in pairwise(told):
        found.require(before < offset, f"differing: {name}")
    recent = told[-RECENT:]
    for place, name, offset in recent[:: max(1, len(recent) // PLACED)]:
        behind = list(stored[place + 1 :])
        if read_all(http, stream, offset)[: len(behind)] != behind:
            found.blame(f"differing: {name}")


def _offset_of(operation: Operation) -> str:
    """Where it was told to be; a producer's duplicate is told the tail instead."""
    if not operation.answers:
        return ""
    status, offset = operation.answers[0]
    is_duplicate = "Producer-Id" in operation.headers and status == 204
    return "" if is_duplicate else offset


class _Patient(httpx.HTTPTransport):
    """Comes back when it is told to, and counts how often it was."""

    refused = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        for _ in range(TRIES):
            response = super().handle_request(request)
            if response.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                return response
            self.refused += 1
            response.close()
            time.sleep(PAUSE_SECONDS)
        return super().handle_request(request)
