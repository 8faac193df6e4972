"""The load generator: one process and one thread that sends prepared requests and measures the answers.

    python -m bench.load --kind append --port 8788 --path /v1/stream/bench --keys random --connections 64
    python -m bench.load --kind redis --port 6379 --rate 20000

Without --rate the loop is closed: each connection has --in-flight requests under way. With it the loop is open, and the
latency of a request counts from the time at which it was to be sent. It prints one JSON object, and tells on stderr
when its window opens and closes, so that the one who started it can read the CPU time of the server at these times.
`load_busy` is the share of one CPU that the generator itself took: near 1, it is the limit and not the server.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from collections.abc import Callable, Sequence

from bench.load_jobs import JobBatches, JobCycles, JobSubmits
from bench.load_keys import KEYS
from bench.load_loop import Count, Loop, Source
from bench.load_sources import Appends, NatsMessages, RedisScript
from bench.load_surfaces import Events, ManyTransactions, Transactions

KINDS: dict[str, Callable[[argparse.Namespace], Source]] = {
    "append": Appends,
    "redis": RedisScript,
    "nats": NatsMessages,
    "job": JobSubmits,
    "jobs": JobBatches,
    "cycle": JobCycles,
    "event": Events,
    "ledger": Transactions,
    "ledger-bulk": ManyTransactions,
}
PERCENTILES = (50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 100.0)
OPENED, CLOSED = "window opened", "window closed"


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value that `share` percent of the ordered values do not exceed; 0 of none."""
    if not ordered:
        return 0.0
    rank = -(-len(ordered) * share // 100)  # rounded up
    return ordered[max(0, int(rank) - 1)]


def figures(count: Count, seconds: float, load_busy: float) -> dict[str, object]:
    """What is printed."""
    times = sorted(count.seconds)
    curve = {f"{share:g}": round(percentile(times, share) * 1_000, 4) for share in PERCENTILES}
    return {
        "per_second": count.units / seconds if seconds else 0.0,
        "units": count.units,
        "seconds": seconds,
        "p50_ms": curve["50"],
        "p99_ms": curve["99"],
        "curve_ms": curve,
        "errors": 0,
        "load_busy": load_busy,
    }


def measure(asked: argparse.Namespace) -> dict[str, object]:
    """Prepare, connect, warm up and count."""
    source = KINDS[asked.kind](asked)
    source.prepare(asked.port)
    loop = Loop(source, asked.port, asked.connections, asked.in_flight)
    gc.collect()
    gc.freeze()
    gc.disable()
    used: list[float] = []

    def edge(is_opening: bool) -> None:
        used.append(time.process_time())
        print(OPENED if is_opening else CLOSED, file=sys.stderr, flush=True)

    opens = time.perf_counter() + asked.warm
    count = Count(opens, opens + asked.window, by_intended=asked.rate is not None)
    seconds = loop.run(count, asked.rate, edge)
    loop.close()
    if not count.units:
        raise SystemExit("nothing was answered while the window was open")
    if asked.rate is not None:  # a server that cannot keep up answers the requests of the window after its end
        seconds = max(asked.window, count.last - count.opens)
    return figures(count, seconds, (used[-1] - used[0]) / seconds if seconds else 0.0)


def options() -> argparse.ArgumentParser:
    """What can be asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=sorted(KINDS), default="append")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--in-flight", type=int, default=1, help="requests under way on each connection")
    parser.add_argument("--rate", type=float, help="requests a second, whatever the server does: an open loop")
    parser.add_argument("--keys", choices=sorted(KEYS), default="random")
    parser.add_argument("--path", default="/v1/stream/bench", help="of the stream that is appended to")
    parser.add_argument("--base", default="", help="what precedes the path of events and of submissions of jobs")
    parser.add_argument("--put", action="store_true", help="create the streams first")
    parser.add_argument("--streams", type=int, default=0, help="spread over PATH-0 to PATH-(N-1)")
    parser.add_argument(
        "--batch", type=int, default=1, help="events, operations or transactions a request, or jobs a claim"
    )
    parser.add_argument("--jobs", type=int, default=30_000, help="that are queued before cycles begin")
    parser.add_argument("--prepared", type=int, default=100_000, help="operations rendered beforehand")
    parser.add_argument("--core", type=int, default=-1, help="the CPU that the generator runs on; -1 for any")
    parser.add_argument("--warm", type=float, default=0.5)
    parser.add_argument("--window", type=float, default=3.0)
    return parser


def main() -> None:
    """Measure once and print it."""
    asked = options().parse_args()
    if asked.core >= 0:
        os.sched_setaffinity(0, {asked.core})
    print(json.dumps(measure(asked)))


if __name__ == "__main__":
    main()
