"""The law of the event loop, measured on a real server: how long one request holds the loop, and what memory it takes.

CPU time and resident memory are judged, never the time of the clock, so that a busy machine changes little.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.harness.server import RunningServer, path_with

SITE = Path(__file__).parent / "site"
NUMBERS = struct.Struct("qq")
MIB = 1024 * 1024

HOLD_MS = 50.0
TIMES_BODY = 4
BESIDE_BYTES = 16 * MIB

_SETTLE_SECONDS = 0.3


class Cost(NamedTuple):
    """What a request took of the server."""

    hold_ms: float
    """The longest that the loop was held, of CPU time."""
    memory_bytes: int
    """By how much resident memory grew, at its highest."""

    def allowed_bytes(self, body: int) -> int:
        """What the law allows for a body, or an answer, of this size."""
        return TIMES_BODY * body + BESIDE_BYTES


class WatchedServer(RunningServer):
    """A server with a clock inside."""

    def __init__(self, data: Path, **settings: str) -> None:
        data.mkdir(parents=True, exist_ok=True)
        self._file = data.parent / f"{data.name}.loop"
        self._file.write_bytes(NUMBERS.pack(0, 0))
        env = path_with(SITE) | {"LOOP_FILE": str(self._file)}
        super().__init__(data, env=env | {f"SEMEL_{name}": value for name, value in settings.items()}, grpc=True)

    def cost_of(self, request: Callable[[], object]) -> Cost:
        """Make a request, and say what it took."""
        time.sleep(_SETTLE_SECONDS)  # what came before is over
        before = self._resident("VmRSS")
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")  # the peak is that of now
        with self._file.open("r+b") as file:
            file.write(NUMBERS.pack(0, 0))
        request()
        self._wait_for_ticks()
        return Cost(self._longest_ns() / 1e6, max(0, self._resident("VmHWM") - before))

    def plant_hold(self) -> None:
        """Have the loop held for 100 ms, and wait until it is."""
        order = Path(f"{self._file}.hold")
        order.touch()
        while order.exists():
            time.sleep(0.01)

    @property
    def ticks(self) -> int:
        """How often the clock ticked since it was last set to zero."""
        return int(NUMBERS.unpack(self._file.read_bytes())[1])

    @property
    def cpu_seconds(self) -> float:
        """CPU time of the whole process, in all its threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _longest_ns(self) -> int:
        return int(NUMBERS.unpack(self._file.read_bytes())[0])

    def _wait_for_ticks(self) -> None:
        """A hold is known when it is over and the clock has ticked again."""
        seen, end = self.ticks, time.monotonic() + 120
        while self.ticks < seen + 3 and time.monotonic() < end:
            time.sleep(0.01)

    def _resident(self, name: str) -> int:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith(name)).split()[1])


@contextmanager
def watched(folder: Path, **settings: str) -> Iterator[WatchedServer]:
    """A server that runs."""
    with WatchedServer(folder / "data", **settings) as server:
        yield server
