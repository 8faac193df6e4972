"""The same job calls to two servers, one of which knows no head shapes: the same answers, counts and jobs.

The servers run in this process, without sockets. Ids, tokens and times differ between two servers: each answer is
compared with these replaced by their order of appearance. `python -m tests.jobs.shapes.differential --cases 100000`
runs as many as you like.
"""

from __future__ import annotations

import asyncio
import random
import re
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from semel.surfaces.jobs.shaped_calls import ShapedClaim, ShapedReport
from semel.surfaces.jobs.shaped_submission import ShapedSubmit
from tests.harness.beside import main
from tests.jobs.shapes.bodies import Bodies
from tests.streams.shapes.differential import Server

CONNECTIONS = 4
LINES = (
    b"",
    b"",
    b"",
    b"",
    b"Accept: */*",
    b"Prefer: wait=0",
    b"Prefer: respond-async",
    b"Idempotency-Key: in-the-head",
    b"X-Request-Id: mine",
    b"Connection: close",
    b"Expect: 100-continue",
    b"Authorization: Bearer x",
    b"Origin: http://localhost",
    b"Content-Length: 3",
)
PATHS = (b"/v1/jobs", b"/v1/jobs", b"/v1/jobs", b"/mesh/submit_request", b"/v1/jobs?x=1", b"/v1/job%73")
_NAMED = re.compile(rb"(?i)job_([0-9a-f]{32})|([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})|([0-9a-f]{32})")
_TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_SIZE = re.compile(rb"(?m)^content-length: \d+\r\n")
_DIGEST = re.compile(rb'"result_sha256":"[0-9a-f]{64}"')
_LEASE = re.compile(
    rb'"job_id":"(job_[0-9a-f]{32})"[^{}]*(?:\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})?[^{}]*"lease_token":"([0-9a-f]{32})"'
)


class Seen:
    """What one server has given: leases, and the ids in the order of their appearance."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.leases: list[tuple[bytes, bytes]] = []
        self._numbers: dict[bytes, int] = {}

    async def send(self, connection: int, pieces: list[bytes]) -> bytes:
        """Send bytes; the answer without what differs between two servers."""
        answer = await self.server.send(connection, pieces)
        self.leases += _LEASE.findall(answer)
        answer = _DIGEST.sub(b'"result_sha256":"#"', answer)
        return _SIZE.sub(b"", _TIME.sub(b"<time>", _NAMED.sub(self._numbered, answer)))

    def _numbered(self, found: re.Match[bytes]) -> bytes:
        name = (found[1] or found[2] or found[3]).replace(b"-", b"").lower()
        return b"#%d" % self._numbers.setdefault(name, len(self._numbers))


class Calls:
    """Draws calls, the same for both servers but for the names of jobs and tokens."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._bodies = Bodies(self._chance)
        self._number = 0

    def draw(self, sides: list[Seen]) -> tuple[int, list[list[bytes]]]:
        """A connection, and the pieces for each server."""
        chance = self._chance
        line = chance.choice(LINES) if chance.random() < 0.3 else b""
        requests = self._requests(sides, line)
        while chance.random() < 0.15:
            requests = [one + other for one, other in zip(requests, self._requests(sides, line), strict=True)]
        cut = chance.randrange(1, min(map(len, requests))) if chance.random() < 0.05 else 0
        pieces = [[one[:cut], one[cut:]] if cut else [one] for one in requests]
        return chance.randrange(CONNECTIONS), pieces

    def _requests(self, sides: list[Seen], line: bytes) -> list[bytes]:
        chance = self._chance
        kind = chance.random()
        if kind < 0.35:
            return [self._recurring()] * len(sides)
        if kind < 0.55:
            body, path = self._bodies.submission(), chance.choice(PATHS) if chance.random() < 0.2 else PATHS[0]
            return [post(path, body, line)] * len(sides)
        if kind < 0.7 or not sides[0].leases:
            return [post(b"/v1/jobs/claim", self._bodies.claim(), line)] * len(sides)
        call = b"complete" if chance.random() < 0.9 else chance.choice((b"heartbeat", b"defer", b"fail", b"x"))
        state, place = chance.getstate(), 0
        requests = []
        for side in sides:
            chance.setstate(state)
            place = -1 - int(chance.random() ** 2 * len(side.leases))
            job, token = side.leases[place]
            if chance.random() < 0.05:
                job = chance.choice((b"job_1", b"job_" + b"0" * 32, b"job_%6a", b"job_" + job[4:].upper()))
            requests.append(post(b"/v1/jobs/%b/%b" % (job, call), self._bodies.report(b'"%b"' % token), line))
        return requests

    def _recurring(self) -> bytes:
        """A submission of one of a few forms, each of which comes again and again, most often with another key."""
        chance = self._chance
        self._number += chance.random() < 0.8
        key = b'"idempotency_key":"%06d",' % self._number if chance.random() < 0.7 else b""
        return post(PATHS[0], b'{%b"kind":"k","params":{"a":1}}' % key, chance.choice((*[b""] * 6, *LINES[4:])))


def post(path: bytes, body: bytes, line: bytes = b"") -> bytes:
    """A call, with one more line in its head."""
    lines = [b"Host: localhost", b"Content-Type: application/json", b"Content-Length: %d" % len(body)]
    if line:
        lines.append(line)
    return b"POST %b HTTP/1.1\r\n%b\r\n\r\n%b" % (path, b"\r\n".join(lines), body)


async def compare(seed: int, cases: int) -> Counter[str]:
    """Send the same to both; the number of calls that the shapes have taken, by kind."""
    taken: Counter[str] = Counter()
    shaped: tuple[Any, ...] = (ShapedSubmit, ShapedClaim, ShapedReport)
    settles = [one.settle for one in shaped]
    for one in shaped:
        one.settle = _counted(one.settle, taken)
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        sides = [Seen(Server(Path(one), is_blind=False)), Seen(Server(Path(other), is_blind=True))]
        try:
            for side in sides:
                for surface in side.server.app.surfaces:
                    await surface.start()
            calls = Calls(seed)
            for _ in range(cases):
                connection, pieces = calls.draw(sides)
                answers = [await side.send(connection, some) for side, some in zip(sides, pieces, strict=True)]
                assert answers[0] == answers[1], (pieces, answers)
            read = b"GET /v1/jobs?limit=1000 HTTP/1.1\r\nHost: localhost\r\n\r\n"
            lists = [await side.send(99, [read]) for side in sides]
            assert lists[0] == lists[1]
            counts = [dict(side.server.context.meter.totals) for side in sides]
            assert counts[0] == counts[1], counts
        finally:
            for kind, settle in zip(shaped, settles, strict=True):
                kind.settle = settle
            for side in sides:
                await side.server.stop()
    return taken


def _counted(settle: Any, taken: Counter[str]) -> Any:
    def counted(self: Any, answer: Any) -> None:
        taken[type(self).__name__] += 1
        settle(self, answer)

    return counted


if __name__ == "__main__":
    main(__doc__, lambda seed, cases: asyncio.run(compare(seed, cases)) + Counter(cases=cases))
