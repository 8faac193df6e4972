"""What a run is judged by: nothing lost, nothing doubled, no answer that differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import httpx

from tests.harness.crash.verdict import Verdict
from tests.streams.crash.clients import Operation


def judge_appends(verdict: Verdict, url: str, operations: Iterable[Operation]) -> None:
    """Read every stream and compare it with what the clients were told."""
    by_stream: dict[str, list[Operation]] = {}
    for operation in operations:
        by_stream.setdefault(operation.stream, []).append(operation)
    with httpx.Client(base_url=url, timeout=60) as http:
        for stream, done in by_stream.items():
            _judge_stream(http, stream, done, verdict)


def _judge_stream(http: httpx.Client, stream: str, done: list[Operation], verdict: Verdict) -> None:
    stored = read_all(http, stream)
    count = Counter(stored)
    place = {name: number for number, name in enumerate(stored)}
    for operation in done:
        verdict.count("appends")
        verdict.count("interrupted", operation.attempts > len(operation.answers))
        if count[operation.name] == 0:
            verdict.blame(f"lost: {operation.name}")
        elif count[operation.name] > 1:
            verdict.blame(f"doubled: {operation.name}")
        elif not _answers_agree(http, operation, place[operation.name], len(stored)):
            verdict.blame(f"differing: {operation.name} was told {operation.answers}")
    for name in sorted(set(stored) - {operation.name for operation in done}):
        verdict.blame(f"nobody has sent {name}")


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
