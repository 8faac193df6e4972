"""The same transactions to two servers, one of which knows no head shapes: the same answers, counts and entities.

The servers run in this process, without sockets. Slugs and transaction ids differ between two servers: each request
names the slugs of its server, and each answer is compared with ids replaced by their order of appearance.
`python -m tests.ledger.shapes.differential --cases 100000` runs as many as you like.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import tempfile
from base64 import b64encode
from collections import Counter
from pathlib import Path
from typing import Any

from semel.surfaces.ledger.shaped_write import ShapedWrite
from tests.harness.beside import main
from tests.harness.tokens import token_file
from tests.streams.shapes.differential import Server

CONNECTIONS = 4
LINES = (
    b"Accept: */*",
    b"Idempotency-Key: 00112233-4455-6677-8899-aabbccddeeff",
    b"IDEMPOTENCY-KEY: 00112233-4455-6677-8899-aabbccddee00",
    b"X-Request-Id: mine",
    b"X-Ledger-Api-Version: 1",
    b"X-Ledger-Api-Version: 2",
    b"Connection: close",
    b"Expect: 100-continue",
    b"Authorization: Bearer x",
    b"X-Api-Key: wrong",
    b"Origin: http://localhost",
    b"Content-Length: 3",
    b"Content-Encoding: gzip",
)
TOKENS = {"admin": "admin-token", "mine": "mine-token", "reader": "reader-token", "scoped": "scoped-token"}
_ID = re.compile(rb'"id":"([A-Za-z0-9+/]{22}==)"')
_SIZE = re.compile(rb"(?m)^content-length: \d+\r\n")
_SLUG = re.compile(rb"\b\d{16}\b")


class Side:
    """One server, with an organization and a vault."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.places: dict[str, str] = {}
        self._numbers: dict[bytes, int] = {}
        self._org = self._vault = ""

    async def prepare(self, head: bytes) -> None:
        """Create the places; `head` is a line with the credential of an administrator."""
        for surface in self.server.app.surfaces:
            await surface.start()
        org = json.loads(await self._ask(post("/ledger/v1/orgs", b'{"name":"o"}', head)))["slug"]["slug"]
        base = f"/ledger/v1/orgs/{org}"
        vault = json.loads(await self._ask(post(f"{base}/vaults", b"{}", head)))["vault"]["slug"]
        self.places = {"org": base, "vault": f"{base}/vaults/{vault}", "none": f"{base}/vaults/5"}

    async def send(self, connection: int, pieces: list[bytes]) -> bytes:
        """Send bytes; the answer without what differs between two servers."""
        answer = await self.server.send(connection, pieces)
        return _SIZE.sub(b"", _SLUG.sub(b"<slug>", _ID.sub(self._numbered, answer)))

    async def _ask(self, request: bytes) -> bytes:
        return (await self.server.send(98, [request])).partition(b"\r\n\r\n")[2]

    def _numbered(self, found: re.Match[bytes]) -> bytes:
        return b'"id":"#%d"' % self._numbers.setdefault(found[1], len(self._numbers))


class Writes:
    """Draws requests, the same for both servers but for the places that they name."""

    def __init__(self, seed: int, heads: tuple[bytes, ...]) -> None:
        self._chance = random.Random(seed)
        self._heads = heads
        self._last: Counter[str] = Counter()

    def draw(self, sides: list[Side]) -> tuple[int, list[list[bytes]]]:
        """A connection, and the pieces for each server."""
        chance = self._chance
        requests = self._requests(sides)
        while chance.random() < 0.1:
            requests = [one + other for one, other in zip(requests, self._requests(sides), strict=True)]
        cut = chance.randrange(1, min(map(len, requests))) if chance.random() < 0.05 else 0
        pieces = [[one[:cut], one[cut:]] if cut else [one] for one in requests]
        return chance.randrange(CONNECTIONS), pieces

    def _requests(self, sides: list[Side]) -> list[bytes]:
        chance = self._chance
        lines = [chance.choice(self._heads)]
        if chance.random() < 0.15:
            lines.append(chance.choice(LINES))
        place = chance.choice(("org", "vault", "vault", "vault")) if chance.random() < 0.97 else "none"
        end = "writes" if chance.random() < 0.97 else chance.choice(("batches", "writes?x=1", "writes:bulk"))
        body = self._body(place)
        return [post(f"{side.places[place]}/{end}", body, b"\r\n".join(filter(None, lines))) for side in sides]

    def _body(self, place: str) -> bytes:
        chance = self._chance
        if chance.random() < 0.02:
            return chance.choice((b"", b"{}", b"[]", b"{", b'{"clientId":"a","operations":[]}', b"\xff"))
        client = chance.choice(("mine/1", "other", "scoped", "scoped", "scoped", "\\ud800", ""))
        client = client if chance.random() < 0.35 else "mine"
        name = f"{place} {client}"
        body: dict[str, Any] = {"clientId": client}
        if chance.random() < 0.7:
            self._last[name] += chance.random() < 0.9
            body["sequence"] = f"{self._last[name] + (chance.random() < 0.05):03d}"
        if "sequence" not in body or chance.random() < 0.1:
            body["idempotencyKey"] = b64encode(b"%016d" % chance.randrange(300)).decode()
        body["operations"] = [self._operation() for _ in range(1 if chance.random() < 0.95 else 2)]
        if chance.random() < 0.03:
            body["includeTxProof"] = False
        return json.dumps(body, separators=(",", ":")).replace("\\\\u", "\\u").encode()

    def _operation(self) -> Any:
        chance = self._chance
        key = f"key-{chance.randrange(40):02d}" if chance.random() < 0.97 else chance.choice(("", "a\nb", "k" * 1_025))
        if chance.random() < 0.03:
            return {"deleteEntity": {"key": key}}
        value: Any = {"key": key, "value": b64encode(b"%04d" % chance.randrange(10_000)).decode()}
        if chance.random() < 0.05:
            value |= chance.choice(({"expiresAt": "5"}, {"condition": {"notExists": True}}, {"value": "?"}, {"x": 1}))
        return {"setEntity": value}


def post(path: str, body: bytes, line: bytes = b"") -> bytes:
    """A request, with more lines in its head."""
    lines = [b"Host: localhost", b"Content-Type: application/json", b"Content-Length: %d" % len(body)]
    if line:
        lines.append(line)
    return b"POST %b HTTP/1.1\r\n%b\r\n\r\n%b" % (path.encode(), b"\r\n".join(lines), body)


def counts_of(side: Side) -> list[Any]:
    """Everything that the server has counted about these calls."""
    context = side.server.context
    ledger = next(one for one in side.server.app.surfaces if one.surface == "ledger")
    metrics = ledger.service.audit_trail.metrics  # type: ignore[attr-defined]
    return [
        dict(context.meter.totals),
        dict(context.metrics.requests),
        metrics.counts,
        metrics.declined,
        metrics.refused,
    ]


async def compare(seed: int, cases: int, *, has_tokens: bool = False) -> int:
    """Send the same to both; the number of transactions that the shapes have taken."""
    taken = 0
    settle = ShapedWrite.settle

    def counted(self: ShapedWrite, number: int, answer: object) -> None:
        nonlocal taken
        taken += 1
        settle(self, number, answer)

    ShapedWrite.settle = counted  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        more: dict[str, Any] = {}
        heads: tuple[bytes, ...] = (b"",)
        if has_tokens:
            more["tokens"] = str(_tokens(Path(one)))
            heads = tuple(b"Authorization: Bearer %b" % token.encode() for token in TOKENS.values())
            heads += (b"X-Api-Key: mine-token", b"X-Api-Key: mine-token", b"")
        sides = [Side(Server(Path(folder), is_blind=folder == other, **more)) for folder in (one, other)]
        try:
            for side in sides:
                await side.prepare(heads[0])
            writes = Writes(seed, heads)
            for _ in range(cases):
                connection, pieces = writes.draw(sides)
                answers = [await side.send(connection, some) for side, some in zip(sides, pieces, strict=True)]
                assert answers[0] == answers[1], (pieces, answers)
            for end in ("entities?limit=1000", "tip", "clients/mine/state", "clients/other/state"):
                read = "GET %s/%s HTTP/1.1\r\nHost: localhost\r\n%s\r\n\r\n"
                asked = [
                    (read % (side.places["vault"], end, heads[0].decode())).replace("\r\n\r\n\r\n", "\r\n\r\n")
                    for side in sides
                ]
                told = [await side.server.send(99, [text.encode()]) for side, text in zip(sides, asked, strict=True)]
                found = [_without_chance(text) for text in told]
                assert found[0] == found[1], found
            counts = [counts_of(side) for side in sides]
            assert counts[0] == counts[1], counts
        finally:
            ShapedWrite.settle = settle  # type: ignore[method-assign]
            for side in sides:
                await side.server.stop()
    return taken


def _tokens(folder: Path) -> Path:
    roles = {"admin": ["admin", "read", "write"], "mine": ["read", "write"], "reader": ["read"], "scoped": ["write"]}
    scopes = {"scoped": ["ledger:1/"]}
    return token_file(folder, {name: (token, roles[name], scopes.get(name, [])) for name, token in TOKENS.items()})


def _without_chance(answer: bytes) -> bytes:
    """An answer without ids, hashes, times and slugs."""
    answer = re.sub(rb'"(lastTxId|blockHash|stateRoot)":\{[^{}]*\}', b"", answer)
    return re.sub(rb'"(timestamp|lastSeen|nextPageToken)":"[^"]*"', b"", _SIZE.sub(b"", _SLUG.sub(b"", answer)))


def compare_with_and_without(seed: int, cases: int) -> Counter[str]:
    """One run; every other one has credentials."""
    return Counter(cases=cases, taken=asyncio.run(compare(seed, cases, has_tokens=seed % 2 == 0)))


if __name__ == "__main__":
    main(__doc__, compare_with_and_without)
