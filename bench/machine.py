"""What a benchmark ran on, in a few lines that belong under its table."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

SYNCS = 400
PACKAGES = ("apsw", "httptools", "orjson", "psycopg", "uvloop")


def facts() -> Iterator[str]:
    """The machine and its disk."""
    yield f"{os.cpu_count()} CPUs ({_cpu()}), {platform.system()} {platform.release()}"
    yield f"Python {platform.python_version()}"
    p50, p99 = sync_ms()
    yield f"a 4 KiB append with fdatasync took {p50:.2f} ms at the median and {p99:.2f} at p99, right after the run"


def details() -> dict[str, object]:
    """The same as values, with the versions of what Semel itself uses."""
    p50, p99 = sync_ms()
    return {
        "cpus": os.cpu_count(),
        "cpu": _cpu(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {name: importlib.metadata.version(name) for name in PACKAGES},
        "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "sync_p50_ms": round(p50, 4),
        "sync_p99_ms": round(p99, 4),
    }


def sync_ms() -> tuple[float, float]:
    """Median and 99th percentile of a 4 KiB append with fdatasync, where temporary files are."""
    sync = getattr(os, "fdatasync", os.fsync)
    times: list[float] = []
    with tempfile.TemporaryFile() as file:
        for _ in range(SYNCS):
            began = time.perf_counter()
            os.write(file.fileno(), bytes(4_096))
            sync(file.fileno())
            times.append((time.perf_counter() - began) * 1_000)
    times.sort()
    return times[SYNCS // 2], times[SYNCS * 99 // 100]


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
