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
from dataclasses import dataclass, field
from itertools import pairwise

import httpx

from tests.failover.clients import UnnamedOperation
from tests.streams.crash.clients import Operation
from tests.streams.crash.verdict import Verdict, read_all

READ_SECONDS = 60.0
TRIES = 200
PAUSE_SECONDS = 0.1
REPEATED = 20
"""How many appends a judgement repeats on each node, and as many of those that were interrupted."""
PLACED = 3
"""In how many places of a stream it reads on from an answered offset,"""
RECENT = 500
"""which are among the last so many."""


@dataclass(slots=True)
class FailoverVerdict(Verdict):
    """The three lists that must be empty, and besides how many appends nobody knows the outcome of."""

    acknowledged: int = 0
    unknown: int = 0
    told_unknown: int = 0
    refused: int = 0
    stale: list[str] = field(default_factory=list)
    """Reads that showed less than what had been answered before; must be empty too."""
    put_off: int = 0
    """Requests that were told to come back later, although the failover was over."""

    @property
    def is_clean(self) -> bool:
        """Whether the promise held, for writes and for reads."""
        return not (self.lost or self.doubled or self.differing or self.stale)

    def add(self, other: FailoverVerdict) -> None:
        """Take over what another judgement has found wrong; what is known already is not listed again."""
        self.lost = list(dict.fromkeys((*self.lost, *other.lost)))
        self.doubled = list(dict.fromkeys((*self.doubled, *other.doubled)))
        self.differing = list(dict.fromkeys((*self.differing, *other.differing)))
        self.stale = list(dict.fromkeys((*self.stale, *other.stale)))
        self.put_off += other.put_off

    def __str__(self) -> str:
        return (
            f"{self.acknowledged} writes acknowledged, {self.retried} interrupted "
            f"(of those without a name {self.unknown} unknown, {self.told_unknown} of these by a node's word, "
            f"{self.refused} refused): "
            f"{len(self.lost)} lost, {len(self.doubled)} doubled, {len(self.differing)} answers that differ, "
            f"{len(self.stale)} stale reads; {self.put_off} requests put off when it was over"
        )


def judge(urls: Sequence[str], operations: Iterable[Operation], chance: random.Random) -> FailoverVerdict:
    """Repeat some of them on every node, then read every stream there from its beginning."""
    verdict = FailoverVerdict()
    by_stream: dict[str, list[Operation]] = defaultdict(list)
    for operation in operations:
        by_stream[operation.stream].append(operation)
        _count(operation, verdict)
    for url in urls:
        found = FailoverVerdict()
        patient = _Patient()
        with httpx.Client(base_url=url, timeout=READ_SECONDS, transport=patient) as http:
            _repeat_some(http, by_stream, chance, found)
            for stream, done in by_stream.items():
                _judge_stream(http, stream, done, found)
        found.put_off = patient.refused
        verdict.add(found)
    return verdict


def _count(operation: Operation, verdict: FailoverVerdict) -> None:
    verdict.operations += 1
    verdict.acknowledged += bool(operation.answers)
    verdict.retried += operation.attempts > len(operation.answers)
    if isinstance(operation, UnnamedOperation):
        verdict.unknown += operation.is_unknown
        verdict.told_unknown += operation.is_told_unknown
        verdict.refused += operation.is_refused


def _repeat_some(
    http: httpx.Client, by_stream: Mapping[str, list[Operation]], chance: random.Random, found: FailoverVerdict
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
            found.differing.append(operation.name)


def _some(operations: Sequence[Operation], chance: random.Random) -> list[Operation]:
    return chance.sample(operations, min(REPEATED, len(operations)))


def _judge_stream(http: httpx.Client, stream: str, done: Sequence[Operation], found: FailoverVerdict) -> None:
    stored = read_all(http, stream)
    count = Counter(stored)
    for operation in done:
        times = count.pop(operation.name, 0)
        if times > 1:
            found.doubled.append(operation.name)
        elif operation.answers and not times:
            found.lost.append(operation.name)
        elif _contradicts(operation, times):
            found.differing.append(operation.name)
    found.doubled += sorted(count)
    _judge_offsets(http, stream, stored, {operation.name: operation for operation in done}, found)


def _contradicts(operation: Operation, times: int) -> bool:
    """Whether it was told something that is not so, or two things."""
    if isinstance(operation, UnnamedOperation) and operation.is_refused:
        return times > 0
    if any(status not in (200, 204) for status, _ in operation.answers):
        return True
    return operation.is_keyed and len(set(operation.answers)) > 1


def _judge_offsets(
    http: httpx.Client, stream: str, stored: Sequence[str], done: Mapping[str, Operation], found: FailoverVerdict
) -> None:
    """Offsets that were answered rise with the places of their messages, and lie just behind them."""
    offsets = [(place, name, _offset_of(done[name])) for place, name in enumerate(stored) if name in done]
    told = [(place, name, offset) for place, name, offset in offsets if offset]
    found.differing += [name for (_, _, before), (_, name, offset) in pairwise(told) if before >= offset]
    recent = told[-RECENT:]
    for place, name, offset in recent[:: max(1, len(recent) // PLACED)]:
        behind = list(stored[place + 1 :])
        if read_all(http, stream, offset)[: len(behind)] != behind:
            found.differing.append(name)


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
