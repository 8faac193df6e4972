"""A data folder of the SQLite store with many receipts, filled in bulk without a server; and how it is opened.

`python -m bench.filled_store FOLDER` fills a folder; `python -m bench.filled_store FOLDER --open` then tells seconds
and memory of a start.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from semel.store.protocol import Changes
from semel.store.sqlite.store import SqliteFileStore
from semel.surfaces.schema import MIGRATIONS, TABLES
from semel.surfaces.streams.tables import RECEIPT, ReceiptRow

FILLED_AT_ONCE = 10_000
STREAMS = 50
FAR_MS = 2**42
"""No receipt expires while it is measured."""


def receipts(count: int) -> Iterator[ReceiptRow]:
    """Receipts of ordinary size with random keys."""
    draw = random.randbytes
    for _ in range(count):
        scope = b"default/filled-%d" % random.randrange(STREAMS)
        yield ReceiptRow(scope, draw(17), draw(16), draw(32), FAR_MS, 204, 12_345, 0, None, None)


def fill(folder: Path, count: int) -> None:
    """Store this number of receipts, in about 20 microseconds for each; keys move out of memory as in a server."""
    with closing(SqliteFileStore(folder, TABLES, MIGRATIONS, lambda: time.time_ns() // 1_000_000)) as store:
        for at in range(0, count, FILLED_AT_ONCE):
            tx = store.begin((), durable=False)
            tx.flush(Changes({RECEIPT: list(receipts(min(FILLED_AT_ONCE, count - at)))}, {}, {}))
            tx.commit()
            store.tidy()


def opened(folder: Path) -> str:
    """Open a filled folder; seconds and memory."""
    before, began, cpu = _resident_bytes(), time.monotonic(), time.thread_time()
    with closing(SqliteFileStore(folder, TABLES, MIGRATIONS, lambda: time.time_ns() // 1_000_000)) as store:
        spent, waited, size = time.thread_time() - cpu, time.monotonic() - began, store._logs.size
        held = (_resident_bytes() - before) / 1e6
        keys = f"{size.memory_keys:,} keys in memory, {size.disk_keys:,} on disk"
        return f"{keys}: opened in {spent:.1f} s of CPU time, {waited:.1f} s in all; {held:.0f} MB more memory"


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4_096


def main() -> None:
    """Fill a folder, or open it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--receipts", type=int, default=5_000_000)
    parser.add_argument("--open", action="store_true", help="open a folder that is filled already")
    asked = parser.parse_args()
    if asked.open:
        print(opened(asked.folder))
        return
    began = time.monotonic()
    fill(asked.folder, asked.receipts)
    print(f"{asked.receipts:,} receipts in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
