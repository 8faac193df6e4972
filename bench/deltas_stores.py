"""Stores that hold so many deltas, filled through the server's own surface, for measurements of how costs grow.

A store is filled once, over HTTP, with large pushes of four clients, and stays as it is; what is measured is a copy of
it. It is filled anew when the code that makes the rows of deltas, or the deltas themselves, have changed.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

from bench.deltas_load import Pusher, Request
from bench.deltas_wire import FILLERS, GATEWAY, filler, push, stored
from bench.jobs_depth import tell
from bench.jobs_load import run
from bench.tally import new_loop
from semel.surfaces.deltas import tables
from tests.harness.server import RunningServer

FILL_DELTAS = 2_000
"""Of one push; they have about 900 KB."""
MADE = "made.json"
DATA = "data"
TELL_SECONDS = 0.5

Gauges = dict[str, int]
"""What the server says of its log."""


class Site:
    """A server on a copy of a filled store."""

    def __init__(self, deltas: int, kept: Path, home: Path) -> None:
        self.deltas = deltas
        self._kept = kept
        self._home = home
        self.server = RunningServer(home / DATA)

    def restore(self) -> None:
        """Put the store back as it was filled; the server does not run."""
        shutil.rmtree(self._home, ignore_errors=True)
        shutil.copytree(self._kept / DATA, self._home / DATA)
        self.settle()

    def settle(self) -> None:
        """Let the disk have everything, so that no measurement waits for what was written before it."""
        for path in self._files():
            with path.open("rb") as file:
                os.fsync(file.fileno())

    def cool(self) -> None:
        """Let the system forget the files; the server does not run."""
        self.settle()
        for path in self._files():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def gauges(self) -> Gauges:
        """What the running server counts."""
        found: Gauges = httpx.get(f"{self.server.url}/v1/admin/metrics/{GATEWAY}").raise_for_status().json()
        return found

    def bytes_on_disk(self) -> int:
        """All files together."""
        return sum(path.stat().st_size for path in self._files())

    def _files(self) -> list[Path]:
        return [path for path in (self._home / DATA).rglob("*") if path.is_file()]


def filled(folder: Path, deltas: int) -> Path:
    """Where a store with so many deltas is kept; it is filled if it is not there."""
    kept = folder / f"{deltas}-deltas"
    wanted = {"layout": _layout(), "deltas": deltas}
    made = kept / MADE
    if not made.exists() or json.loads(made.read_text()) != wanted:
        shutil.rmtree(kept, ignore_errors=True)
        with RunningServer(kept / DATA) as server, asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(_fill(server.port, deltas))
        made.write_text(json.dumps(wanted))
    return kept


async def _fill(port: int, deltas: int) -> None:
    """Each client sends its share, on a connection of its own."""
    pushers = await run(port, lambda _: Pusher(), FILLERS)
    ends = asyncio.gather(*(pusher.work_off(_pushes(number, deltas)) for number, pusher in enumerate(pushers)))
    began = time.perf_counter()
    while not ends.done():
        await asyncio.wait([ends], timeout=TELL_SECONDS)
        done = sum(pusher.deltas for pusher in pushers)
        tell(f"storing {deltas:,} deltas: {done:,} after {time.perf_counter() - began:.0f} s")
    await ends


def _pushes(number: int, deltas: int) -> Iterator[Request]:
    mine = iter(range(number, deltas, FILLERS))
    while some := list(itertools.islice(mine, FILL_DELTAS)):
        yield Request(push(filler(number), [stored(one) for one in some]), len(some), 0)


def _layout() -> str:
    """Stands for what is stored: the code that makes rows of deltas, and one delta."""
    code = Path(tables.__file__).parent
    modules = [code / "tables.py", *sorted((code / "rules").glob("*.py"))]
    digest = hashlib.sha256(b"%d" % FILLERS + stored(0))
    for module in modules:
        digest.update(module.read_bytes())
    return digest.hexdigest()
