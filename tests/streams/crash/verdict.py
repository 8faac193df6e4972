"""What a run is judged by: nothing lost, nothing doubled, no answer that differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import httpx

from tests.streams.crash.clients import Operation


@dataclass(slots=True)
class Verdict:
    """Three lists that must be empty, and what they were drawn from."""

    operations: int = 0
    retried: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    """Points of the commit path at which a server was to die and did not: nothing was shown about them."""

    @property
    def is_clean(self) -> bool:
        """Whether the promise held, everywhere where it was to be tried."""
        return not (self.lost or self.doubled or self.differing or self.missed)

    def __str__(self) -> str:
        return (
            f"{self.operations} appends, {self.retried} of them retried: "
            f"{len(self.lost)} lost, {len(self.doubled)} doubled, {len(self.differing)} answers that differ; "
            f"points never hit: {', '.join(self.missed) or 'none'}"
        )


def judge(url: str, operations: Iterable[Operation]) -> Verdict:
    """Read every stream and compare it with what the clients were told."""
    verdict = Verdict()
    by_stream: dict[str, list[Operation]] = {}
    for operation in operations:
        by_stream.setdefault(operation.stream, []).append(operation)
    with httpx.Client(base_url=url, timeout=60) as http:
        for stream, done in by_stream.items():
            _judge_stream(http, stream, done, verdict)
    return verdict


def _judge_stream(http: httpx.Client, stream: str, done: list[Operation], verdict: Verdict) -> None:
    stored = read_all(http, stream)
    count = Counter(stored)
    place = {name: number for number, name in enumerate(stored)}
    for operation in done:
        verdict.operations += 1
        verdict.retried += operation.attempts > len(operation.answers)
        if count[operation.name] == 0:
            verdict.lost.append(operation.name)
        elif count[operation.name] > 1:
            verdict.doubled.append(operation.name)
        elif not _answers_agree(http, operation, place[operation.name], len(stored)):
            verdict.differing.append(operation.name)
    verdict.doubled += sorted(set(stored) - {operation.name for operation in done})


def _answers_agree(http: httpx.Client, operation: Operation, place: int, total: int) -> bool:
    """Every answer the same, the offset just behind this message, and one more retry gets it again."""
    if any(status not in (200, 204) for status, _ in operation.answers):
        return False
    if not operation.is_keyed:
        return True
    if len(set(operation.answers)) != 1:
        return False
    offset = operation.answers[0][1]
    if place % 17 == 0:
        again = http.post(
            f"/v1/stream/{operation.stream}",
            content=operation.body,
            headers={"Content-Type": "application/json", **operation.headers},
        )
        behind = read_all(http, operation.stream, offset)
        replayed = again.headers.get("Idempotency-Replayed") == "true"
        return replayed and again.headers["Stream-Next-Offset"] == offset and len(behind) == total - place - 1
    return True


def read_all(http: httpx.Client, stream: str, offset: str = "-1") -> list[str]:
    """The names of all operations in a stream behind an offset, in order."""
    names: list[str] = []
    while True:
        answer = http.get(f"/v1/stream/{stream}", params={"offset": offset})
        answer.raise_for_status()
        names += [message["op"] for message in answer.json()]
        offset = answer.headers["Stream-Next-Offset"]
        if "Stream-Up-To-Date" in answer.headers:
            return names
