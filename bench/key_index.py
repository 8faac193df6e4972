"""`make bench WHAT=key_index`: what the memory index of a log table costs, beside a key tree of the same receipts.

One key: CPU nanoseconds of an addition, of a search that misses and of one that hits, and resident bytes. One store:
seconds of the rebuild at a start, and, for a batch of 64 receipts with random keys, CPU microseconds a receipt (load,
flush and commit, without waiting for the disk) and pages written to the log of SQLite. Times are the least of several
rounds, because the machine may be shared.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from statistics import median

from bench.machine import facts
from semel.store.migrations import CreateTable, Migration
from semel.store.protocol import AnyTable, Changes
from semel.store.sqlite.key_index import KeyIndex
from semel.store.sqlite.log_directory import INDEX_BYTES, index_keys_of
from semel.store.sqlite.store import SqliteFileStore
from semel.store.table import Table
from semel.surfaces.streams.tables import ReceiptRow

BATCH = 64
BATCHES = 200
FILLED_AT_ONCE = 10_000
SAMPLE = 100_000
STREAMS = 50
PAGE = 4_096
INDEX_KEYS = index_keys_of(INDEX_BYTES)

LOG = Table("receipt", ReceiptRow, key=2, generational=True, bulky=True, log=True)
TREE = Table("receipt", ReceiptRow, key=2, generational=True, bulky=True)


def random_key() -> tuple[bytes, bytes]:
    """The scope and the packed random key of a receipt."""
    return b"stream-%d" % random.randrange(STREAMS), random.randbytes(17)


def receipts(count: int) -> list[ReceiptRow]:
    """Receipts of ordinary size with random keys."""
    return [
        ReceiptRow(*key, random.randbytes(16), random.randbytes(32), 2**41, 204, 12_345, 0, None, None)
        for key in (random_key() for _ in range(count))
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


def one_key(keys: int) -> Iterator[str]:
    """The figures of the index alone."""
    hashes = [hash(random_key()) for _ in range(keys)]
    absent = [hash(random_key()) for _ in range(5 * SAMPLE)]
    before = resident_bytes()
    index, place = KeyIndex(), iter(range(1, keys + 1))
    added = nanoseconds(lambda hashed: index.add(hashed, next(place)), hashes)
    held = (resident_bytes() - before) / keys
    yield f"one of {keys:,} keys: {held:.1f} bytes resident, addition {added:.0f} ns"
    for name, some in (("miss", absent), ("hit", hashes[: 5 * SAMPLE])):
        yield f"{name} {nanoseconds(index.places, some):.0f} ns, in a batch {in_batches(index, some):.0f} ns"


def in_batches(index: KeyIndex, hashes: list[int]) -> float:
    """As `nanoseconds`, for searches of a batch at once."""
    parts = [hashes[at : at + BATCH] for at in range(0, len(hashes), BATCH)]
    rounds = []
    for at in range(0, len(parts), SAMPLE // BATCH):
        some = parts[at : at + SAMPLE // BATCH]
        began = time.thread_time_ns()
        for part in some:
            index.gather(part)
        rounds.append((time.thread_time_ns() - began) / sum(map(len, some)))
    return min(rounds)


def opened(folder: Path, table: AnyTable, index_keys: int) -> SqliteFileStore:
    """A store with one table."""
    migrations = (Migration(1, "receipts", (CreateTable(table.shape),)),)
    return SqliteFileStore(folder, (table,), migrations, lambda: 1, index_keys=index_keys)


def append(store: SqliteFileStore, table: AnyTable, rows: list[ReceiptRow]) -> None:
    """One transaction with new receipts."""
    tx = store.begin((), durable=False)
    tx.load({table: [row[:2] for row in rows]}, [])
    tx.flush(Changes({table: rows}, {}, {}))
    tx.commit()


def batches(store: SqliteFileStore, table: AnyTable) -> tuple[float, float]:
    """CPU microseconds a receipt (the least of all batches), and pages a batch (the median)."""
    spent, pages = [], []
    for _ in range(BATCHES):
        store._writer.wal_checkpoint()
        rows = receipts(BATCH)
        began, store._checkpoints.pages = time.thread_time(), 0
        append(store, table, rows)
        spent.append((time.thread_time() - began) / BATCH * 1e6)
        pages.append(store._checkpoints.pages)
        store.tidy()
    return min(spent), median(pages)


def one_store(keys: int, table: AnyTable, index_keys: int) -> Iterator[str]:
    """The figures of a store that holds this number of receipts."""
    name = "key tree" if not table.log else f"log, {index_keys:,} keys in memory at most"
    with tempfile.TemporaryDirectory() as folder:
        with closing(opened(Path(folder), table, index_keys)) as store:
            slices = []
            for _ in range(keys // FILLED_AT_ONCE):
                append(store, table, receipts(FILLED_AT_ONCE))
                began = time.thread_time()
                store._logs.tidy()
                slices.append(time.thread_time() - began)
                while store._logs._move is not None:
                    began = time.thread_time()
                    store._logs.tidy()
                    slices.append(time.thread_time() - began)
                store.tidy()
            spent, pages = batches(store, table)
        yield f"{name}: {spent:.1f} us a receipt, {pages:.0f} pages a batch of {BATCH} at {keys:,} receipts"
        if index_keys < keys:
            yield f"{name}: {sum(slices) / keys * 1e6:.2f} us a key to move, longest call {max(slices) * 1e3:.1f} ms"
        began = time.thread_time()
        with closing(opened(Path(folder), table, index_keys)):
            if table.log:
                yield f"{name}: opened in {time.thread_time() - began:.2f} s of CPU time"


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    keys: int = parser.parse_args().keys
    for line in one_key(keys):
        print(line, flush=True)
    for table, index_keys in ((TREE, INDEX_KEYS), (LOG, INDEX_KEYS), (LOG, keys // 4)):
        for line in one_store(keys, table, index_keys):
            print(line, flush=True)
    for line in facts():
        print(line)


if __name__ == "__main__":
    main()
