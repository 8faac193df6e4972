"""The same bytes to two servers, one of which knows no head shapes: the same answers and the same content.

The servers run in this process, without sockets. Requests are plain appends and slight variations of them: other cases
of header names, doubled, folded and odd headers, keys of every form, other bodies and lengths, pieces and pipelines.
`python -m tests.streams.shapes.differential --cases 1000000` runs as many as you like.
"""

from __future__ import annotations

import asyncio
import random
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from semel.engine.engine import nowhere
from semel.server.app import App
from semel.server.http.head_shapes import HeadShape, HeadShapes, KnownHead
from semel.server.http.protocol import HttpProtocol
from semel.server.namespaces import build_context
from semel.server.process import make_host
from semel.server.settings_loader import make_settings
from semel.surfaces.streams.shaped_append import ShapedAppend
from tests.harness.beside import main
from tests.server.http.test_exchange import Reading

CONNECTIONS = 4
PLAIN_FORMS = 12
"""Plain forms of requests that are in use at the beginning."""
KEY = b"@key@"
STREAMS = (b"s", b"raw", b"closed", b"none")
TYPES = {b"raw": b"application/octet-stream"}
_VARYING = re.compile(rb"(?m)^(date: [^\r]*|x-request-id: ([0-9a-f]{12}-[0-9a-f]+|[0-9a-f]{16}))\r\n")
"""Lines that differ between two servers: the date, and ids of requests that the server has given."""
PATIENCE_SECONDS = 30.0
ODD_BODIES = (b"", b"[]", b"[1,2]", b"[1,2,3,4,5]", b"{", b'{"a":1}x', b'{"a":1}\r\n\r\n', b'"\xff"', b"1")


ADDED = (
    b"X-Request-Id: mine",
    b"Stream-Closed: false",
    b"Stream-Closed: true",
    b"Stream-Seq: 9",
    b"Producer-Id: p",
    b"Connection: close",
    b"Connection: keep-alive",
    b"Expect: 100-continue",
    b"Transfer-Encoding: chunked",
    b"Origin: https://elsewhere.example",
    b"Content-Encoding: gzip",
    b'If-Match: "x"',
    b"Idempotency-Key: second",
    b"IDEMPOTENCY-KEY: third",
    b"Authorization: Bearer x",
    b"Authorization: Basic eDp5",
    b"Authorization: Bearer x\r\nX-Semel-Token: y",
    b"Content-Length: 3",
    b"X-Any: Idempotency-Key: no",
)
"""Lines that are added to a plain request."""


class Blind(HeadShapes):
    """Knows no shape."""

    def take(self, connection: HttpProtocol, data: bytes) -> int:
        """Nothing is known."""
        return 0

    def learn(self, data: bytes, size: int, make: Callable[[bytes], HeadShape | None], prefix: bytes = b"") -> None:
        """Nothing is learned."""


class Server:
    """One server, and its connections."""

    def __init__(self, data: Path, *, is_blind: bool, **more: Any) -> None:
        """`more` are further settings."""
        settings = make_settings(data=str(data), store="memory:", commit_thread="never", streams_max_messages=4, **more)
        self.context = build_context(settings, nowhere)
        self.app = App(self.context)
        self._host = make_host(settings, self.app)
        if is_blind:
            self._host.shapes = Blind(settings.http_max_head_bytes)
        self.shapes = self._host.shapes
        self._connections: dict[int, tuple[HttpProtocol, Reading]] = {}

    async def send(self, number: int, pieces: Sequence[bytes]) -> bytes:
        """Send bytes on a connection; everything that is answered, and how the connection is left."""
        protocol, pipe = self.connection(number)
        pipe.written.clear()
        for piece in pieces:
            protocol.data_received(piece)
            await asyncio.sleep(0)
        until = time.monotonic() + PATIENCE_SECONDS
        while (protocol.running is not None or protocol.waiting) and time.monotonic() < until:  # noqa: ASYNC110
            await asyncio.sleep(0)
        for _ in range(3):
            await asyncio.sleep(0)
        answer = b"".join(pipe.written)
        if pipe.is_closed:
            self.close(number)
        return _VARYING.sub(b"", answer) + (b"<closed>" if pipe.is_closed else b"")

    def close(self, number: int) -> None:
        """The client goes."""
        found = self._connections.pop(number, None)
        if found is not None:
            found[0].connection_lost(None)

    async def stop(self) -> None:
        """Close everything."""
        for number in list(self._connections):
            self.close(number)
        await self.context.engine.stop()
        self.context.audit.close()

    def connection(self, number: int) -> tuple[HttpProtocol, Reading]:
        """A connection, and what it has written."""
        if number not in self._connections:
            pipe = Reading()
            protocol = HttpProtocol(self._host, asyncio.get_running_loop())
            protocol.connection_made(cast(asyncio.Transport, pipe))
            self._connections[number] = protocol, pipe
        return self._connections[number]


class Sent(NamedTuple):
    """What one connection sends at once."""

    connection: int
    pieces: tuple[bytes, ...]


class Requests:
    """Draws requests."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._number = 0
        self._last: dict[int, bytes] = {}
        """The last form on each connection."""
        self._forms = [self._form(line) for line in ADDED] + [self._form(b"") for _ in range(PLAIN_FORMS)]

    def draw(self) -> Sent:
        """The next bytes, with the connection that they come on."""
        chance = self._chance
        connection = chance.randrange(CONNECTIONS)
        kind = chance.random()
        data = self._request(connection)
        if kind >= 0.85:
            data += self._request(connection)
        if chance.random() < 0.9:
            return Sent(connection, (data,))
        cut = chance.randrange(1, len(data))
        return Sent(connection, (data[:cut], data[cut:]))

    def _request(self, connection: int) -> bytes:
        """A request of one of a few forms, each of which comes again and again with another key; every other time that
        is the last form on the connection, sometimes with another body of the same length.
        """
        chance = self._chance
        at = chance.randrange(len(self._forms))
        if chance.random() < 0.05:
            self._forms[at] = self._form(None)
        form = self._forms[at]
        if connection in self._last and chance.random() < 0.5:
            form = self._last[connection]
            if chance.random() < 0.3 and form[-1:] != b"\n":
                body_at = form.index(b"\r\n\r\n") + 4
                changed = chance.randrange(body_at, len(form))
                form = form[:changed] + chance.choice((b"7", b" ", b"]", b"\xff", b"\n")) + form[changed + 1 :]
        self._last[connection] = form
        return form.replace(KEY, self._key(chance.random() < 0.2))

    def _form(self, added: bytes | None) -> bytes:
        """A form with a line added, if any; None for a random one."""
        chance = self._chance
        is_odd = added is None and chance.random() < 0.7
        body = self._body(is_odd and chance.random() < 0.5)
        stream = chance.choice(STREAMS) if is_odd else chance.choice(STREAMS[:2])
        lines = [b"Host: localhost", b"Content-Type: " + TYPES.get(stream, b"application/json")]
        if chance.random() < 0.8:
            lines.append(chance.choice((b"Idempotency-Key: ", b"idempotency-key: ")) + KEY)
        lines.append(b"Content-Length: %d" % len(body))
        if added:
            lines.append(added)
        if is_odd:
            self._spoil(lines)
        return b"POST /v1/stream/%b HTTP/1.1\r\n%b\r\n\r\n%b" % (stream, b"\r\n".join(lines), body)

    def _key(self, is_odd: bool) -> bytes:
        chance = self._chance
        self._number += 1
        fresh = b"key-%08d" % self._number
        if not is_odd:
            return fresh if chance.random() < 0.8 else b"key-%08d" % max(1, self._number - chance.randrange(20))
        return chance.choice(
            (
                b'"' + fresh + b'"',
                b'"a\\"b"',
                b"",
                b" " + fresh,
                fresh + b" ",
                b"two words",
                b"x" * chance.choice((255, 256, 257)),
                b"caf\xc3\xa9",
                b"a\x01b",
                b"a\tb",
                b"0a9f3b52-6a44-4a63-9d3e-1f2e3d4c5b6a",
                fresh + b"\r\nStream-Closed: true",
                fresh + b"\r\n folded",
            )
        )

    def _body(self, is_odd: bool) -> bytes:
        chance = self._chance
        if not is_odd:
            return b'{"n":%d}' % chance.randrange(100)
        return chance.choice(
            (b"", b"[]", b"[1,2]", b"[1,2,3,4,5]", b"{", b'{"a":1}x', b'{"a":1}\r\n\r\n', b'"\xff"', b"1")
        )

    def _spoil(self, lines: list[bytes]) -> None:
        """Change a line, or add one."""
        chance = self._chance
        at = chance.randrange(len(lines))
        change = chance.randrange(10)
        if change == 0:
            lines.append(lines[at])
        elif change == 1:
            lines[at] = lines[at].upper()
        elif change == 2:
            lines[at] = lines[at].replace(b": ", chance.choice((b":", b" : ", b":\t", b":  ")), 1)
        elif change == 3:
            lines.insert(at, lines.pop())
        elif change == 4:
            lines[at] += b"\r\n folded"
        elif change == 5:
            del lines[at]
        else:
            lines.insert(
                chance.randrange(len(lines) + 1),
                chance.choice(ADDED),
            )


class Taken(NamedTuple):
    """How many requests did not go the full way."""

    appends: int
    """By their shape."""
    alone: int
    """Of these, or left to the rules after all: whole requests that were like the last one of their connection."""


async def compare(seed: int, cases: int) -> Taken:
    """Send the same to both; what the shapes have taken."""
    taken = alone = 0
    settle, take_alone = ShapedAppend.settle, HttpProtocol._take_alone

    def counted(self: ShapedAppend, answer: object) -> None:
        nonlocal taken
        taken += 1
        settle(self, answer)  # type: ignore[arg-type]

    def counted_alone(self: HttpProtocol, head: KnownHead, data: bytes) -> bool:
        nonlocal alone
        is_taken = take_alone(self, head, data)
        alone += is_taken
        return is_taken

    ShapedAppend.settle = counted  # type: ignore[method-assign]
    HttpProtocol._take_alone = counted_alone  # type: ignore[method-assign, assignment]
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        known, blind = Server(Path(one), is_blind=False), Server(Path(other), is_blind=True)
        try:
            for server in (known, blind):
                await prepare(server)
            requests = Requests(seed)
            for _ in range(cases):
                sent = requests.draw()
                answers = [await server.send(*sent) for server in (known, blind)]
                assert answers[0] == answers[1], (sent, answers)
            for stream in STREAMS:
                read = b"GET /v1/stream/%b HTTP/1.1\r\nHost: localhost\r\n\r\n" % stream
                contents = [_body_of(await server.send(99, (read,))) for server in (known, blind)]
                assert contents[0] == contents[1], stream
        finally:
            ShapedAppend.settle = settle  # type: ignore[method-assign]
            HttpProtocol._take_alone = take_alone  # type: ignore[method-assign]
            await known.stop()
            await blind.stop()
    return Taken(taken, alone)


async def prepare(server: Server) -> None:
    """Start a server and create its streams."""
    for surface in server.app.surfaces:
        await surface.start()
    for stream in STREAMS[:3]:
        more = b"Stream-Closed: true\r\n" if stream == b"closed" else b""
        kind = TYPES.get(stream, b"application/json")
        made = b"PUT /v1/stream/%b HTTP/1.1\r\nHost: localhost\r\nContent-Type: %b\r\n" % (stream, kind)
        made += more + b"\r\n"
        assert b" 201 " in await server.send(99, (made,))


def _body_of(answer: bytes) -> bytes:
    return answer.partition(b"\r\n\r\n")[2]


def compare_appends(seed: int, cases: int) -> Counter[str]:
    """One run, on a pair of servers of its own."""
    taken = asyncio.run(compare(seed, cases))
    return Counter(cases=cases, appends=taken.appends, alone=taken.alone)


if __name__ == "__main__":
    main(__doc__, compare_appends)
