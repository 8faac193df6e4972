"""What a benchmark ran on, in a few lines that belong under its table."""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

SYNCS = 200


def facts() -> Iterator[str]:
    """The machine and its disk."""
    yield f"{os.cpu_count()} CPUs ({_cpu()}), {platform.system()} {platform.release()}"
    yield f"Python {platform.python_version()}"
    yield f"a synced write of 4 KiB took {_sync_ms():.2f} ms at the median, right after the run"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _sync_ms() -> float:
    times: list[float] = []
    with tempfile.TemporaryFile() as file:
        for _ in range(SYNCS):
            began = time.perf_counter()
            os.write(file.fileno(), bytes(4_096))
            os.fsync(file.fileno())
            times.append(time.perf_counter() - began)
    return median(times) * 1_000
