"""The load generator of reads: catch-up of a whole stream, or the tail of streams for many event-stream readers.

    python -m bench.load_reads --port 8788 --kind catch-up --connections 4 --appends 20000
    python -m bench.load_reads --port 8788 --kind tail --connections 1000 --rate 20

Catch-up fills `--path`, unless it is there already, and reads it from its beginning again and again. Its unit is a MB
of content, counted as it comes, and its latency is that of the whole stream, whatever the size of a page. The unit of
the tail (`bench.load_tail`) is a message that one reader has got. Like `bench.load` it prints one JSON object, and
tells on stderr when its window opens and closes.
"""

from __future__ import annotations

import argparse
import http.client
import json
import resource
import sys
import threading
import time
from collections.abc import Callable

from bench.load import CLOSED, OPENED, figures
from bench.load_loop import HOST, BrokenError, Count
from bench.load_tail import message, tail

WRITERS = 32
PIECE_BYTES = 256 * 1024
_JSON = {"Content-Type": "application/json"}


def fill(asked: argparse.Namespace) -> None:
    """Append until the stream has its content; one that was there before has it."""
    if not _is_new(asked):
        return
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
            caller.request("POST", asked.path, body, _JSON)
            answer = caller.getresponse()
            answer.read()
            if answer.status not in (200, 204):
                raise BrokenError(f"an append was answered {answer.status}")
        caller.close()

    _together(WRITERS, write)


def _is_new(asked: argparse.Namespace) -> bool:
    """Create the stream; whether it was not there."""
    caller = http.client.HTTPConnection(HOST, asked.port, timeout=60)
    caller.request("PUT", asked.path, b"", _JSON)
    status = caller.getresponse().status
    caller.close()
    if status not in (200, 201):
        raise BrokenError(f"PUT was answered {status}")
    return status == 201


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


class CatchUp:
    """Readers of a whole stream, and what they have counted."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self._asked = asked
        opens = time.perf_counter() + asked.warm
        self.count = Count(opens, opens + asked.window, by_intended=True)
        """Bytes by the time at which they came, latencies by the time at which a pass through the stream began."""
        self._guard = threading.Lock()

    def read(self) -> None:
        """One reader: pass after pass until the window has closed."""
        caller = http.client.HTTPConnection(HOST, self._asked.port, timeout=60)
        buffer = bytearray(PIECE_BYTES)
        while (began := time.perf_counter()) < self.count.closes:
            offset = "-1"
            while offset:
                offset = self._page(caller, offset, buffer)
            with self._guard:
                if began >= self.count.opens:
                    self.count.seconds.append(time.perf_counter() - began)
        caller.close()

    def _page(self, caller: http.client.HTTPConnection, offset: str, buffer: bytearray) -> str:
        """One page, and the offset of the next one; nothing after the last."""
        caller.request("GET", f"{self._asked.path}?offset={offset}")
        answer = caller.getresponse()
        if answer.status != 200:
            raise BrokenError(f"a read was answered {answer.status}")
        while size := answer.readinto(buffer):
            with self._guard:
                if self.count.opens <= time.perf_counter() < self.count.closes:
                    self.count.units += size
        if answer.getheader("stream-up-to-date") == "true":
            return ""
        return answer.getheader("stream-next-offset", "")


def catch_up(asked: argparse.Namespace) -> dict[str, object]:
    """Read the whole stream on every connection, again and again."""
    fill(asked)
    readers = CatchUp(asked)
    used: list[float] = []
    edges = threading.Thread(target=_edges, args=(asked, used))
    edges.start()
    _together(asked.connections, readers.read)
    edges.join()
    found = figures(readers.count, asked.window, (used[1] - used[0]) / asked.window)
    megabytes = readers.count.units / 1e6
    if not megabytes:
        raise SystemExit("nothing was read while the window was open")
    return found | {"units": megabytes, "per_second": megabytes / asked.window}


def _edges(asked: argparse.Namespace, used: list[float]) -> None:
    """Tell when the window opens and closes, and keep the CPU time that this process has used until then."""
    for seconds, edge in ((asked.warm, OPENED), (asked.window, CLOSED)):
        time.sleep(seconds)
        used.append(time.process_time())
        print(edge, file=sys.stderr, flush=True)


def options() -> argparse.ArgumentParser:
    """What can be asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--kind", choices=("catch-up", "tail"), required=True)
    parser.add_argument("--path", default="/v1/stream/bench")
    parser.add_argument("--connections", type=int, default=1, help="readers")
    parser.add_argument(
        "--streams", type=int, default=0, help="the readers of a tail are spread over PATH-0 to PATH-(N-1)"
    )
    parser.add_argument("--appends", type=int, default=20_000, help="that the stream has")
    parser.add_argument("--batch", type=int, default=1, help="messages of 200 bytes in an append")
    parser.add_argument("--rate", type=float, default=20.0, help="appends a second to the tail")
    parser.add_argument("--warm", type=float, default=0.5)
    parser.add_argument("--window", type=float, default=3.0)
    return parser


def main() -> None:
    """Measure once and print it."""
    asked = options().parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    found = catch_up(asked) if asked.kind == "catch-up" else tail(asked)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
