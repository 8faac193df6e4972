"""Runs the driver of a candidate once, on the CPU of the load generator; reads CPU time and memory of the servers."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from bench.load import CLOSED, OPENED
from bench.suite.candidates import BULLMQ, Ask, Candidate
from bench.suite.measures import Point
from bench.suite.results import Record
from bench.suite.servers import ROOT, Place, Served, cores, cpu_ns, peak_mib

PATIENCE_SECONDS = 300


class Driver:
    """Runs one measurement after the other."""

    def __init__(self, seconds: float, warm: float, jobs: int) -> None:
        self._seconds = seconds
        self._warm = warm
        self._jobs = jobs

    def measure(self, candidate: Candidate, place: Place, served: Served, point: Point, rate: float | None) -> Record:
        """One point of one candidate, once."""
        ask = Ask(point.measure, point.callers, self._seconds, self._warm, rate, self._jobs)
        command = candidate.driver(candidate, place, served, ask)
        cwd = BULLMQ if command[0] == place.tools.node else ROOT
        with tempfile.TemporaryFile("w+") as output:
            driver = subprocess.Popen(command, cwd=cwd, stdout=output, stderr=subprocess.PIPE, text=True)
            core = cores()[0]
            if core is not None:
                os.sched_setaffinity(driver.pid, {core})
            seen, told = edges(driver, served)
            if driver.wait(PATIENCE_SECONDS) or len(seen) != 2:
                raise SystemExit(f"{point} failed, the figures would mean nothing:\n{told[-3_000:]}")
            output.seek(0)
            figures: dict[str, Any] = json.loads(output.read().splitlines()[-1])
        units = figures["units"] if "units" in figures else figures["per_second"] * self._seconds
        used = (seen[1].servers_ns - seen[0].servers_ns) / 1_000
        figures["server_cpu_us"] = used / units if units else None  # readers of a tail may have got nothing
        figures["others_busy"] = others_busy(*seen)
        figures["peak_mib"] = seen[1].peak_mib
        return Record(point._asdict() | ({"rate": rate} if rate else {}) | figures)


class Seen(NamedTuple):
    """CPU time so far, in nanoseconds: of the servers, of the driver and of the whole machine; when that was; and the
    most memory that the servers had until then.
    """

    servers_ns: int
    driver_ns: int
    machine_ns: int
    at: float
    peak_mib: float = 0.0


def edges(driver: subprocess.Popen[str], served: Served) -> tuple[list[Seen], str]:
    """What is seen when the window opens and when it closes, and what else the driver said."""
    seen, told = [], ""
    assert driver.stderr is not None
    for line in driver.stderr:
        if line.strip() in (OPENED, CLOSED):
            used = cpu_ns(served.pids), cpu_ns([driver.pid]), machine_ns()
            seen.append(Seen(*used, time.perf_counter(), peak_mib(served.pids)))
        else:
            told += line
    return seen, told


def others_busy(opened: Seen, closed: Seen) -> float:
    """The share of all CPUs that was neither idle nor used by the servers or the driver."""
    ours = closed.servers_ns - opened.servers_ns + closed.driver_ns - opened.driver_ns
    spent = closed.machine_ns - opened.machine_ns - ours
    return max(0.0, spent / 1e9 / (closed.at - opened.at) / (os.cpu_count() or 1))


def machine_ns() -> int:
    """The CPU time that all CPUs have spent on anything, stolen time included; 0 where Linux does not tell."""
    try:
        user, nice, system, _, _, *rest = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9])
    except OSError:
        return 0
    return (user + nice + system + sum(rest)) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
