"""A closed-loop load generator: so many connections, each with one request under way, for so many seconds.

It runs in a process of its own and does as little as possible for each request, because it shares two cores with the
server it measures: requests are prepared bytes with a fresh key put in, and of an answer only the status is looked at.
Run as a program it prints one JSON object; `bench.appends` and `bench.postgres` start it.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import time
from collections.abc import Callable, Sequence
from typing import cast

try:
    import uvloop

    new_loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
except ImportError:  # uvloop has no Windows wheels
    new_loop = asyncio.new_event_loop

BODY = json.dumps({"event": "clicked", "user": "u-123456", "pad": "x" * 150}).encode()


def uuid_text(number: int) -> bytes:
    """A UUID of version 4 with bits of this number."""
    text = b"%032x" % number
    return b"%s-%s-4%s-8%s-%s" % (text[:8], text[8:12], text[13:16], text[17:20], text[20:])


def ordered_key() -> bytes:
    """A UUID that begins with the time, as Semel's own client makes them."""
    return uuid_text(time.time_ns() // 1_000_000 << 80 | random.getrandbits(80))


def random_key() -> bytes:
    """A UUID of chance alone, as most clients make them."""
    return uuid_text(random.getrandbits(128))


def repeated_key() -> bytes:
    """The same key every time: every answer but the first is a replay."""
    return b"00000000-0000-4000-8000-000000000001"


KEYS: dict[str, Callable[[], bytes] | None] = {
    "none": None,
    "ordered": ordered_key,
    "random": random_key,
    "repeated": repeated_key,
}


class Client(asyncio.Protocol):
    """One connection."""

    def __init__(self, head: bytes, new_key: Callable[[], bytes] | None, tally: Tally) -> None:
        self._head = head
        self._new_key = new_key
        self._tally = tally
        self._buffer = b""
        self._sent_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast(asyncio.WriteTransport, transport)
        self._next()

    def data_received(self, data: bytes) -> None:
        """Count an answer and send the next request; answers here have no body."""
        self._buffer += data
        if not self._buffer.endswith(b"\r\n\r\n"):
            return
        self._tally.count(self._buffer[9:12], time.perf_counter() - self._sent_at)
        self._buffer = b""
        if not self._tally.is_over:
            self._next()

    def _next(self) -> None:
        key = b"" if self._new_key is None else b"idempotency-key: %s\r\n" % self._new_key()
        self._sent_at = time.perf_counter()
        self._transport.write(b"%s%s\r\n%s" % (self._head, key, BODY))


class Tally:
    """What was counted while the window was open."""

    def __init__(self) -> None:
        self.is_open = False
        self.is_over = False
        self.seconds: list[float] = []
        self.errors = 0

    def count(self, status: bytes, seconds: float) -> None:
        """One answer."""
        if not self.is_open:
            return
        if status[:1] == b"2":
            self.seconds.append(seconds)
        else:
            self.errors += 1

    def figures(self, window: float) -> dict[str, float]:
        """What is printed: answers a second, latencies, and how many were refused."""
        times = sorted(self.seconds) or [0.0]
        return {
            "per_second": len(self.seconds) / window,
            "p50_ms": times[len(times) // 2] * 1_000,
            "p99_ms": times[len(times) * 99 // 100] * 1_000,
            "errors": self.errors,
        }


def paths(path: str, streams: int) -> list[str]:
    """The path itself, or so many that begin with it."""
    return [f"{path}-{number}" for number in range(streams)] if streams else [path]


def _head(host: str, port: int, path: str) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nhost: {host}:{port}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(BODY)}\r\n"
    ).encode()


async def measure(
    host: str, port: int, targets: Sequence[str], connections: int, keys: str, warm: float, window: float
) -> Tally:
    """Run the loop; a connection keeps to one of the paths, so that a request costs the same however many there are."""
    heads = itertools.cycle([_head(host, port, path) for path in targets])
    loop = asyncio.get_running_loop()
    tally = Tally()
    opened = [
        await loop.create_connection(lambda: Client(next(heads), KEYS[keys], tally), host, port)
        for _ in range(connections)
    ]
    await asyncio.sleep(warm)
    tally.is_open = True
    await asyncio.sleep(window)
    tally.is_over = True
    for transport, _ in opened:
        transport.close()
    return tally


def main() -> None:
    """Measure once and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--path", required=True)
    parser.add_argument("--streams", type=int, default=0, help="spread over PATH-0 to PATH-(N-1)")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--keys", choices=sorted(KEYS), required=True)
    parser.add_argument("--warm", type=float, default=0.5)
    parser.add_argument("--window", type=float, default=3.0)
    asked = parser.parse_args()
    targets = paths(asked.path, asked.streams)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        tally = runner.run(
            measure(asked.host, asked.port, targets, asked.connections, asked.keys, asked.warm, asked.window)
        )
    print(json.dumps(tally.figures(asked.window)))


if __name__ == "__main__":
    main()
