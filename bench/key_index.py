"""`make bench WHAT=key_index`: what the index of keys of a log table costs, in memory and beyond its limit.

One key: CPU nanoseconds of an addition, of a search that misses and of one that hits, and resident bytes. One store
with many receipts, 12 million by default: the time of a start and its memory; for batches of 64 receipts with random
keys the time of each (load, flush and durable commit), CPU microseconds a receipt and pages written to the log of
SQLite; a look-up of keys that have left memory; and how long the drop of a generation takes. Each store is opened in a
process of its own.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path
from statistics import median, quantiles

from bench.machine import facts
from semel.store.migrations import CreateTable, Migration
from semel.store.protocol import Changes
from semel.store.sqlite.key_index import KeyIndex
from semel.store.sqlite.log_directory import INDEX_BYTES, index_keys_of
from semel.store.sqlite.store import SqliteFileStore
from semel.store.table import Table
from semel.surfaces.streams.tables import ReceiptRow

BATCH = 64
BATCHES = 400
MOVED_AT_ONCE = 100_000
SAMPLE = 100_000
STREAMS = 50
PAGE = 4_096
FAR = 2**41
INDEX_KEYS = index_keys_of(INDEX_BYTES)
LOG = Table("receipt", ReceiptRow, key=2, generational=True, bulky=True, log=True)
FILLED = """WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n LIMIT ?)
INSERT INTO receipt_0 SELECT i, scope, randomblob(17), randomblob(16), randomblob(32), expires_at, status, tail, closed,
epoch, seq, checksum FROM n CROSS JOIN first"""


def random_key() -> tuple[bytes, bytes]:
    """The scope and the packed random key of a receipt."""
    return b"stream-%d" % random.randrange(STREAMS), random.randbytes(17)


def receipts(count: int) -> list[ReceiptRow]:
    """Receipts of ordinary size with random keys."""
    return [
        ReceiptRow(*random_key(), random.randbytes(16), random.randbytes(32), FAR, 204, 12_345, 0, None, None)
        for _ in range(count)
    ]


def resident_bytes() -> int:
    """The memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def nanoseconds(work: Callable[[int], object], hashes: list[int]) -> float:
    """CPU time of one call, the least of several rounds over parts of these hashes."""
    rounds = []
    for at in range(0, len(hashes), SAMPLE):
        some = hashes[at : at + SAMPLE]
        began = time.thread_time_ns()
        for hashed in some:
            work(hashed)
        rounds.append((time.thread_time_ns() - began) / len(some))
    return min(rounds)


def one_key() -> Iterator[str]:
    """The figures of the index alone."""
    hashes = [hash(random_key()) for _ in range(10 * SAMPLE)]
    absent = [hash(random_key()) for _ in range(5 * SAMPLE)]
    before = resident_bytes()
    index, place = KeyIndex(), iter(range(1, len(hashes) + 1))
    added = nanoseconds(lambda hashed: index.add(hashed, next(place)), hashes)
    held = (resident_bytes() - before) / len(hashes)
    yield f"one of {len(hashes):,} keys: {held:.1f} bytes resident, addition {added:.0f} ns"
    missed, hit = nanoseconds(index.places, absent), nanoseconds(index.places, hashes)
    yield f"miss {missed:.0f} ns, hit {hit:.0f} ns"


def opened(folder: Path, index_keys: int) -> SqliteFileStore:
    """A store with one table."""
    migrations = (Migration(1, "receipts", (CreateTable(LOG.shape),)),)
    return SqliteFileStore(folder, (LOG,), migrations, lambda: 1, index_keys=index_keys)


def fill(folder: Path, keys: int) -> None:
    """Store receipts by one statement."""
    with closing(opened(folder, keys)) as store:
        append(store, receipts(1))
        store._writer.execute("CREATE TEMP TABLE first AS SELECT * FROM receipt_0")
        store._writer.execute(FILLED, (keys - 1,))


def started(folder: Path, index_keys: int) -> SqliteFileStore:
    """A store that is opened; its time and memory are printed."""
    before, began, cpu = resident_bytes(), time.perf_counter(), time.thread_time()
    store = opened(folder, index_keys)
    spent, waited, size = time.thread_time() - cpu, time.perf_counter() - began, store._logs.size
    print(f"start, {size.memory_keys:,} keys in memory, {size.disk_keys:,} on disk: {waited:.1f} s, ", end="")
    print(f"{spent:.1f} s of CPU time, {(resident_bytes() - before) / 2**20:.0f} MiB", flush=True)
    return store


def append(store: SqliteFileStore, rows: list[ReceiptRow]) -> None:
    """One transaction with new receipts, as a server stores them."""
    tx = store.begin(())
    tx.load({LOG: [row[:2] for row in rows]}, [])
    tx.flush(Changes({LOG: rows}, {}, {}))
    tx.commit()


def measure(store: SqliteFileStore, name: str) -> None:
    """Batches of new receipts; time, CPU time and pages are printed."""
    waited, spent, pages = [], [], []
    for rows in (receipts(BATCH) for _ in range(BATCHES)):
        began, cpu, before = time.perf_counter(), time.thread_time(), store._checkpoints.pages
        append(store, rows)
        spent.append((time.thread_time() - cpu) / BATCH * 1e6)
        waited.append((time.perf_counter() - began) * 1e3)
        pages.append(max(store._checkpoints.pages - before, 0))
        store.tidy()
    tail = quantiles(waited, n=100)[98]
    print(
        f"{name}: {min(spent):.1f} us of CPU time a receipt, median {median(spent):.1f}; a batch of {BATCH}:", end=" "
    )
    print(f"median {median(waited):.1f} ms, p99 {tail:.1f} ms, {median(pages):.0f} pages", end="; ")
    print(f"{resident_bytes() / 2**20:.0f} MiB resident", flush=True)


def in_memory(folder: Path, keys: int) -> None:
    """All keys in memory."""
    with closing(started(folder, 2 * keys)) as store:
        measure(store, "all keys in memory")


def limit_of(keys: int) -> int:
    """The keys that may be in memory."""
    return min(INDEX_KEYS, keys * 2 // 3)


def moving(folder: Path, keys: int) -> None:
    """The keys beyond the limit leave memory, in larger steps than those of a server."""
    with closing(opened(folder, limit_of(keys))) as store:
        moved, began = store._logs.excess, time.thread_time()
        while store._logs.excess > 0:
            tx = store.begin((), durable=False)
            tx._logs.part(store._logs.log("receipt_0").made).move(min(MOVED_AT_ONCE, store._logs.excess))
            tx.commit()
            store.tidy()
        spent = (time.thread_time() - began) / max(moved, 1) * 1e6
        print(f"{moved:,} keys moved in steps of {MOVED_AT_ONCE:,}: {spent:.1f} us of CPU time for each", flush=True)


def beyond(folder: Path, keys: int) -> None:
    """The oldest keys on disk."""
    with closing(started(folder, limit_of(keys))) as store:
        measure(store, "beyond the limit")
        places = random.sample(range(1, store._logs.log("receipt_0").moved.state.boundary), BATCH)
        asked = f"SELECT scope, key FROM receipt_0 WHERE place IN ({', '.join(map(str, places))})"
        moved = [(scope, key) for scope, key in store._writer.execute(asked)]
        for name, wanted in (("moved", moved), ("fresh", [random_key() for _ in range(BATCH)])):
            began = time.thread_time()
            tx = store.begin(())
            found = len(tx.load({LOG: wanted}, []).rows[LOG])
            tx.rollback()
            print(f"{BATCH} {name} keys: {found} found, {(time.thread_time() - began) / BATCH * 1e6:.1f} us for each")
        for name in ("receipt_0_moved", "receipt_0"):
            store._writer.execute("BEGIN IMMEDIATE")
            began = time.perf_counter()
            store._writer.execute(f"DELETE FROM {name}")
            print(f"the rows of {name} dropped in {(time.perf_counter() - began) * 1e3:.0f} ms", flush=True)
            store._writer.execute("ROLLBACK")


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=12_000_000)
    keys: int = parser.parse_args().keys
    print(*one_key(), *facts(), sep="\n", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for step in (fill, in_memory, moving, beyond):
            process = get_context("spawn").Process(target=step, args=(Path(folder), keys))
            process.start()
            process.join()
            if process.exitcode:
                raise SystemExit(process.exitcode)


if __name__ == "__main__":
    main()
