"""The look-up of a write by its key, with many receipts: milliseconds of `POST /v1/writes/find` over one connection.

A store is filled in bulk, without a server: receipts of appends in a number of streams. Then a server is started on it,
and keys are looked up, known ones and unknown ones in turn, with the stream named and without.

    python -m bench.find --receipts 1000000
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from semel.kernel.keys import pack
from semel.kernel.verdict import NEVER
from semel.store.open import open_store
from semel.store.protocol import Changes, Store
from semel.surfaces.schema import MIGRATIONS, TABLES
from semel.surfaces.streams.tables import CHUNK, RECEIPT, STREAM, ChunkRow, ReceiptRow, StreamRow
from tests.harness.postgres.cluster import Cluster
from tests.harness.server import HOST, RunningServer

FILLED_AT_ONCE = 10_000
FAR_MS = 2**42
"""No receipt expires while it is measured."""
NAME = "filled/%06d"
KEY = "00000000-0000-4000-8000-%012x"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def stream_row(number: int, tail: int) -> StreamRow:
    """An open stream without a time to live."""
    name, now = (NAME % number).encode(), now_ms()
    life = number.to_bytes(16, "big")
    kind, nothing = b"text/plain", (None, None, None)
    return StreamRow(pack(name), name, life, kind, *nothing, NEVER, now, now, tail, 0, None, None, None, None)


def fill(store: Store, receipts: int, streams: int) -> None:
    """Streams with receipts, each of an append of one byte."""
    each = receipts // streams
    for at in range(0, receipts, FILLED_AT_ONCE):
        numbers = range(at, min(at + FILLED_AT_ONCE, receipts))
        tx = store.begin((), durable=False)
        rows: dict[object, list[tuple[object, ...]]] = {RECEIPT: [], CHUNK: []}
        for number in numbers:
            stream, tail = number % streams, number // streams + 1
            life, key = stream.to_bytes(16, "big"), pack((KEY % number).encode())
            scope = pack((NAME % stream).encode())
            rows[RECEIPT].append(ReceiptRow(scope, key, life, bytes(32), FAR_MS, 204, tail, 0, None, None))
            rows[CHUNK].append(ChunkRow(life, tail, b"x", 1, now_ms()))
        tx.flush(Changes(rows, {}, {}))  # type: ignore[arg-type]
        tx.commit()
        store.tidy()
    tx = store.begin(())
    tx.flush(Changes({STREAM: [stream_row(number, each) for number in range(streams)]}, {}, {}))
    tx.commit()


def asked(connection: http.client.HTTPConnection, body: dict[str, str]) -> tuple[float, int, bool]:
    """The milliseconds of one look-up, the number of matches, and whether the answer is complete."""
    began = time.perf_counter()
    connection.request("POST", "/v1/writes/find", json.dumps(body))
    answer = connection.getresponse()
    facts = json.loads(answer.read())
    spent = (time.perf_counter() - began) * 1_000
    assert answer.status == 200, facts
    return spent, len(facts["writes"]), facts["complete"]


def measure(server: RunningServer, receipts: int, streams: int, turns: int) -> Iterator[str]:
    """A line for each way to ask."""
    with closing(http.client.HTTPConnection(HOST, server.port, timeout=60)) as connection:
        for is_named in (True, False):
            for is_known in (True, False):
                taken, complete = [], 0
                for turn in range(turns + 20):
                    number = random.randrange(receipts)
                    body = {"id": KEY % (number if is_known else receipts + number)}
                    body |= {"in": NAME % (number % streams)} if is_named else {}
                    spent, found, is_complete = asked(connection, body)
                    assert found == int(is_known) or not is_complete, (body, found)
                    complete += is_complete
                    if turn >= 20:  # the first are for warming up
                        taken.append(spent)
                way = f"{'stream named' if is_named else 'anywhere':12} {'known' if is_known else 'unknown':8}"
                yield f"{way} {told(taken)}, {complete / (turns + 20):.0%} complete"


def told(taken: Sequence[float]) -> str:
    ordered = sorted(taken)
    return f"p50 {statistics.median(ordered):7.2f} ms, p99 {ordered[int(len(ordered) * 0.99)]:7.2f} ms"


@contextmanager
def stores(folder: Path, only: str) -> Iterator[Iterator[tuple[str, str]]]:
    """Names and URLs of stores to fill."""

    def each(cluster: Cluster | None) -> Iterator[tuple[str, str]]:
        if only in "sqlite":
            yield "sqlite", f"sqlite:{folder / 'data'}"
        if cluster is not None:
            yield "postgres", f"{cluster.url}?schema=find"

    if only not in "postgres":
        yield each(None)
        return
    with Cluster() as cluster:
        yield each(cluster)


def main() -> None:
    """Fill and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--receipts", type=int, default=1_000_000)
    parser.add_argument("--streams", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=500, help="look-ups of each way to ask")
    parser.add_argument("--only", default="", help="sqlite or postgres")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made, stores(Path(made), given.only) as found:
        for name, url in found:
            began = time.monotonic()
            with closing(open_store(url, TABLES, MIGRATIONS, now_ms)) as store:
                fill(store, given.receipts, given.streams)
            filled = f"filled in {time.monotonic() - began:.0f} s"
            print(f"{name}: {given.receipts:,} receipts in {given.streams:,} streams, {filled}", flush=True)
            with RunningServer(Path(made) / "data", env={"SEMEL_STORE": url}) as server:
                for line in measure(server, given.receipts, given.streams, given.rounds):
                    print(f"{name:9} {line}", flush=True)


if __name__ == "__main__":
    main()
