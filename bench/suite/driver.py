"""Runs the driver of a candidate once, on the CPU of the load generator, and reads the CPU time of the servers."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from typing import IO, Any

from bench.load import CLOSED, OPENED
from bench.suite.candidates import BULLMQ, Ask, Candidate
from bench.suite.measures import Point
from bench.suite.results import Record
from bench.suite.servers import ROOT, Place, Served, cores, cpu_ns

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
            assert driver.stderr is not None
            used, told = edges(driver.stderr, served)
            if driver.wait(PATIENCE_SECONDS) or len(used) != 2:
                raise SystemExit(f"{point} failed, the figures would mean nothing:\n{told[-3_000:]}")
            output.seek(0)
            figures: dict[str, Any] = json.loads(output.read().splitlines()[-1])
        units = figures.get("units") or figures["per_second"] * self._seconds
        figures["server_cpu_us"] = (used[1] - used[0]) / 1_000 / units
        return Record(point._asdict() | ({"rate": rate} if rate else {}) | figures)


def edges(stderr: IO[str], served: Served) -> tuple[list[int], str]:
    """The CPU time of the servers when the window opens and closes, and what else the driver said."""
    used, told = [], ""
    for line in stderr:
        if line.strip() in (OPENED, CLOSED):
            used.append(cpu_ns(served.pids))
        else:
            told += line
    return used, told
