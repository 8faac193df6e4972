"""The load generator of reads: catch-up of a whole stream, or the tail of one stream for many event-stream readers.

    python -m bench.load_reads --port 8788 --kind catch-up --connections 4 --appends 20000
    python -m bench.load_reads --port 8788 --kind tail --connections 1000 --rate 10

Both fill or create `--path` first. Catch-up reads the stream from its beginning again and again; its unit is a MB of
content. The tail has one writer, whose messages carry the time at which they were sent; its unit is a message that one
reader has got, and its latencies are from there to each reader. Like `bench.load` it prints one JSON object, and tells
on stderr when its window opens and closes.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import re
import resource
import sys
import threading
import time
from collections.abc import Callable
from typing import cast

from bench.load import CLOSED, OPENED, figures
from bench.load_loop import HOST, BrokenError, Count
from bench.load_wires import ask

MESSAGE = b'{"content":"%s"}'
MESSAGE_BYTES = 200
WRITERS = 32
SETTLE_SECONDS = 10.0
_SENT = re.compile(rb"at (\d+) ns")


def message(text: bytes = b"") -> bytes:
    """A message of 200 bytes."""
    return MESSAGE % text.ljust(MESSAGE_BYTES - len(MESSAGE) + 2, b"x")


def fill(asked: argparse.Namespace) -> None:
    """Append until the stream has its content."""
    ask(asked.port, "PUT", asked.path)
    body = message() if asked.batch == 1 else b"[" + b",".join([message()] * asked.batch) + b"]"
    left = asked.appends
    guard = threading.Lock()

    def write() -> None:
        nonlocal left
        caller = http.client.HTTPConnection(HOST, asked.port, timeout=60)
        while True:
            with guard:
                if left <= 0:
                    break
                left -= 1
            caller.request("POST", asked.path, body, {"Content-Type": "application/json"})
            answer = caller.getresponse()
            answer.read()
            if answer.status not in (200, 204):
                raise BrokenError(f"an append was answered {answer.status}")
        caller.close()

    _together(WRITERS, write)


def _together(count: int, work: Callable[[], None]) -> None:
    """Run the work in threads; the first error ends the run."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - told below
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def catch_up(asked: argparse.Namespace) -> dict[str, object]:
    """Read the whole stream on every connection, again and again."""
    fill(asked)
    opens = time.perf_counter() + asked.warm
    count = Count(opens, opens + asked.window, by_intended=False)
    guard = threading.Lock()

    def read() -> None:
        caller = http.client.HTTPConnection(HOST, asked.port, timeout=60)
        offset = "-1"
        while (began := time.perf_counter()) < count.closes:
            caller.request("GET", f"{asked.path}?offset={offset}")
            answer = caller.getresponse()
            size = len(answer.read())
            ended = time.perf_counter()
            if answer.status != 200:
                raise BrokenError(f"a read was answered {answer.status}")
            with guard:
                if count.opens <= ended < count.closes:
                    count.units += size
                    count.seconds.append(ended - began)
            is_last = answer.getheader("stream-up-to-date") == "true"
            offset = "-1" if is_last else answer.getheader("stream-next-offset", "")
        caller.close()

    edges = threading.Thread(target=_edges, args=(asked,))
    edges.start()
    _together(asked.connections, read)
    edges.join()
    found = figures(count, asked.window, 0.0)
    return found | {"units": count.units / 1e6, "per_second": count.units / 1e6 / asked.window}


def _edges(asked: argparse.Namespace) -> None:
    time.sleep(asked.warm)
    print(OPENED, file=sys.stderr, flush=True)
    time.sleep(asked.window)
    print(CLOSED, file=sys.stderr, flush=True)


class Tails:
    """What all readers have got."""

    def __init__(self, count: Count) -> None:
        self.count = count
        self.ready = 0
        self.got = 0


class TailReader(asyncio.Protocol):
    """One event stream; the latency of each message is kept."""

    def __init__(self, path: str, tails: Tails) -> None:
        self._request = f"GET {path}?live=sse&offset=now HTTP/1.1\r\nhost: {HOST}\r\n\r\n".encode()
        self._tails = tails
        self._is_ready = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask."""
        cast(asyncio.WriteTransport, transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        """Note the messages."""
        now = time.perf_counter_ns()
        tails = self._tails
        if not self._is_ready and b"event: control" in data:
            self._is_ready = True
            tails.ready += 1
        for sent in _SENT.findall(data):
            tails.got += 1
            if tails.count.opens <= int(sent) / 1e9 < tails.count.closes:
                tails.count.units += 1
                tails.count.seconds.append((now - int(sent)) / 1e9)


async def tail(asked: argparse.Namespace) -> dict[str, object]:
    """One writer and many readers."""
    ask(asked.port, "PUT", asked.path)
    loop = asyncio.get_running_loop()
    tails = Tails(Count(0.0, 0.0, by_intended=True))
    for at in range(0, asked.connections, 50):
        some = range(min(50, asked.connections - at))
        await asyncio.gather(
            *(loop.create_connection(lambda: TailReader(asked.path, tails), HOST, asked.port) for _ in some)
        )
    while tails.ready < asked.connections:  # noqa: ASYNC110 - each reader counts itself
        await asyncio.sleep(0.05)
    reader, writer = await asyncio.open_connection(HOST, asked.port)
    opens = time.perf_counter() + asked.warm
    tails.count = Count(opens, opens + asked.window, by_intended=True)
    edges = loop.run_in_executor(None, _edges, asked)
    sent = 0
    used = time.process_time()
    while (now := time.perf_counter()) < tails.count.closes:
        body = message(b"at %d ns" % time.perf_counter_ns())
        head = f"POST {asked.path} HTTP/1.1\r\nhost: {HOST}\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        await reader.readuntil(b"\r\n\r\n")
        sent += 1
        await asyncio.sleep(max(0.0, 1 / asked.rate - (time.perf_counter() - now)))
    until = time.perf_counter() + SETTLE_SECONDS
    while tails.got < sent * asked.connections and time.perf_counter() < until:  # noqa: ASYNC110 - as above
        await asyncio.sleep(0.02)
    await edges
    if tails.got < sent * asked.connections:
        raise BrokenError(f"readers got {tails.got} of {sent * asked.connections} messages")
    return figures(tails.count, asked.window, (time.process_time() - used) / asked.window)


def options() -> argparse.ArgumentParser:
    """What can be asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--kind", choices=("catch-up", "tail"), required=True)
    parser.add_argument("--path", default="/v1/stream/bench")
    parser.add_argument("--connections", type=int, default=1, help="readers")
    parser.add_argument("--appends", type=int, default=20_000, help="that the stream has")
    parser.add_argument("--batch", type=int, default=1, help="messages of 200 bytes in an append")
    parser.add_argument("--rate", type=float, default=10.0, help="appends a second to the tail")
    parser.add_argument("--warm", type=float, default=0.5)
    parser.add_argument("--window", type=float, default=3.0)
    return parser


def main() -> None:
    """Measure once and print it."""
    asked = options().parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    found = catch_up(asked) if asked.kind == "catch-up" else asyncio.run(tail(asked))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
