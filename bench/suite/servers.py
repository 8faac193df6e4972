"""Starts what is measured: one process or several, on given CPUs, with syncs as the disk has them or slower.

The load generator has the last CPU for itself, and the servers have all others, if there are two at least and the
system can pin a process; else nothing is pinned. A slower sync is a small library that is loaded into the server and
sleeps before each fsync, fdatasync and msync. It is compiled when it is asked for, so it needs a C compiler and Linux,
and it has no effect on programs that call the kernel past the C library, as those written in Go do.
"""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from bench.jobs_stores import POSTGRES
from tests.harness.guardian import guard
from tests.harness.postgres.cluster import Cluster
from tests.harness.processes import family_of
from tests.harness.server import HOST

ROOT = Path(__file__).parents[2]
START_SECONDS = 60.0
STOP_SECONDS = 30.0
DELAY_MS = 1.0
LIBRARY = Path(__file__).with_name("slow_sync.c")


class Served(NamedTuple):
    """A running candidate: where it listens, and the processes whose CPU time is its own, with their children."""

    port: int
    pids: tuple[int, ...]
    url: str = ""
    """Of its database, for those whose client talks to PostgreSQL itself."""


class Tools(NamedTuple):
    """Programs of the others."""

    python: str
    """Has what the extra `bench` names."""
    node: str
    redis: str
    nats: str


@cache
def cores() -> tuple[int | None, frozenset[int]]:
    """The CPU of the load generator and those of the servers; None and none when nothing is pinned."""
    if not hasattr(os, "sched_getaffinity"):
        return None, frozenset()
    found = sorted(os.sched_getaffinity(0))
    return (found[-1], frozenset(found[:-1])) if len(found) > 1 else (None, frozenset())


def pin(pid: int) -> None:
    """Give a process, and what it starts from now on, the CPUs of the servers."""
    with suppress(ProcessLookupError):  # it may have ended at once: whoever waits for it will notice
        if cores()[1]:
            os.sched_setaffinity(pid, cores()[1])


def cpu_ns(pids: Iterable[int]) -> int:
    """The CPU time of these processes and all their children so far, user and system.

    Of living threads from the scheduler, to the nanosecond; of children that have ended meanwhile, as those of
    PostgreSQL do, from what their parent has collected, to a hundredth of a second.
    """
    used = 0
    for pid in {one for first in pids for one in family_of(first)}:
        with suppress(OSError):  # it has just ended
            collected = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[13:15]
            used += sum(map(int, collected)) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with suppress(OSError):
                used += int(task.read_text().split()[0])
    return used


def peak_mib(pids: Iterable[int]) -> float:
    """The most memory that these processes and all their children had so far, each by itself; 0 if none is known."""
    most = 0
    for pid in {one for first in pids for one in family_of(first)}:
        with suppress(OSError):  # it has just ended
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            most += sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    return most / 1024


def run_folder(prefix: str) -> Path:
    """A folder that is deleted when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def slow_library() -> Path | None:
    """The compiled library, where every account can read it; None where it cannot be made."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or sys.platform != "linux":
        return None
    folder = run_folder("semel-bench-sync-")
    folder.chmod(0o755)
    made = folder / "slow_sync.so"
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", str(made), str(LIBRARY), "-ldl"], check=True)
    made.chmod(0o755)
    return made


def delay_environment(delay_ms: float) -> dict[str, str]:
    """The variables that make every sync of a server slower."""
    if not delay_ms:
        return {}
    library = slow_library()
    assert library is not None, "a slower sync needs Linux and a C compiler"
    return {"LD_PRELOAD": str(library), "BENCH_SYNC_US": str(round(delay_ms * 1_000))}


class Place:
    """Where one candidate runs: a folder of its own, and how long its syncs take."""

    def __init__(self, folder: Path, delay_ms: float, tools: Tools, clusters: Clusters) -> None:
        self.folder = folder
        self.delay_ms = delay_ms
        self.tools = tools
        self.clusters = clusters

    @contextmanager
    def process(
        self, command: Sequence[str], port: int, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> Iterator[int]:
        """A server, until the context ends; its process id once it listens."""
        guard()
        variables = {name: value for name, value in os.environ.items() if not name.startswith("SEMEL_")}
        variables |= delay_environment(self.delay_ms) | dict(env or {})
        self.folder.mkdir(parents=True, exist_ok=True)
        output = self.folder / "output"
        with output.open("ab") as file:
            server = subprocess.Popen(command, env=variables, cwd=cwd or ROOT, stdout=file, stderr=file)
        try:
            pin(server.pid)
            wait_for_port(port, server, output)
            yield server.pid
        finally:
            server.terminate()
            try:
                server.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()

    @contextmanager
    def database(self) -> Iterator[tuple[str, int]]:
        """The URL of a new database, and the process id of its server."""
        cluster = self.clusters.get(self.delay_ms)
        name = f"b{time.monotonic_ns()}"
        cluster.execute(f"CREATE DATABASE {name}")
        try:
            yield f"{cluster.url.rpartition('/')[0]}/{name}", cluster.pid
        finally:
            cluster.execute(f"DROP DATABASE {name} WITH (FORCE)")
            cluster.execute("CHECKPOINT")  # what one measurement leaves to be written is not the next one's business


class Clusters:
    """PostgreSQL servers of a run: one with the syncs of the disk and one with slower ones, started when asked for."""

    def __init__(self) -> None:
        self._running: dict[float, Cluster] = {}

    def get(self, delay_ms: float) -> Cluster:
        """The server with this delay."""
        if delay_ms not in self._running:
            cluster = Cluster(POSTGRES)
            before = dict(os.environ)
            cluster.create()
            os.environ.update(delay_environment(delay_ms))
            try:
                cluster.start()
            finally:
                os.environ.clear()
                os.environ.update(before)
            for pid in family_of(cluster.pid):
                pin(pid)
            self._running[delay_ms] = cluster
        return self._running[delay_ms]

    def remove(self) -> None:
        """End them all."""
        for cluster in self._running.values():
            cluster.remove()


def wait_for_port(port: int, server: subprocess.Popen[bytes], output: Path) -> None:
    """Until the server listens."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return
        if server.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"a candidate did not start:\n{output.read_text(errors='replace')[-2_000:]}")
        time.sleep(0.05)
