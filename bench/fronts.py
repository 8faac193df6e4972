"""CPU of one request with front processes: in the writer, in the fronts, and in one process that does all.

`semel serve --fronts N` is for machines with more cores than one that measures it may have. So this measures the CPU of
a request in each process, in alternating rounds, and works out from it what N fronts on N + 1 cores could reach at
most: the writer's limit is 1 second / its CPU of a request, the fronts' limit is N times 1 second / theirs. Measured
are the CPU times; the rates of more cores are arithmetic, and leave out the load generator and what the cores share.

    python -m bench fronts --fronts 1 --rounds 5
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from bench.host_cpu import HOST, ROOT, Server
from bench.jobs_stores import LIFTED
from bench.load import CLOSED, OPENED

KINDS = ("append", "job")
MOST_FRONTS = 4


class Cpu(NamedTuple):
    """Nanoseconds so far."""

    writer: int
    fronts: int


class FrontedServer(Server):
    """`semel serve` with this number of fronts; 0 is one process."""

    def __init__(self, folder: Path, fronts: int) -> None:
        os.environ.update({"SEMEL_FRONTS": str(fronts), **LIFTED})
        super().__init__(ROOT, folder, is_bare=False)

    def cpu(self) -> Cpu:
        """What the processes have used."""
        writer = self._process.pid
        children = Path(f"/proc/{writer}/task/{writer}/children").read_text().split()
        return Cpu(self.cpu_ns(), sum(map(cpu_of, children)))

    def commits(self) -> tuple[int, int]:
        """Writes and commits so far."""
        with urllib.request.urlopen(f"http://{HOST}:{self.port}/metrics", timeout=30) as answer:
            told = json.loads(answer.read())
        return int(told["semel_engine_writes_total"]), int(told["semel_engine_commits_total{kind=durable}"])


def cpu_of(pid: str) -> int:
    """What the threads of a process have used so far, in nanoseconds."""
    return sum(int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir())


class Round(NamedTuple):
    """One measurement."""

    per_second: float
    writer_us: float
    fronts_us: float
    batch: float
    """Writes of one commit: a commit costs the same for many, so compare rounds with about as many."""


def measure(server: FrontedServer, kind: str, asked: argparse.Namespace) -> Round:
    """Load a server for a while; the CPU of a request in its processes."""
    before = server.commits()
    command = [sys.executable, "-m", "bench.load", "--kind", kind, "--port", str(server.port), "--put"]
    command += ["--connections", str(asked.connections), "--window", str(asked.seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as load:
        assert load.stderr is not None
        assert load.stdout is not None
        edges: dict[str, Cpu] = {}
        for line in load.stderr:
            for edge in (OPENED, CLOSED):
                if edge in line:
                    edges[edge] = server.cpu()
        told = json.loads(load.stdout.read())
    writer, fronts = (
        (late - early) / told["units"] / 1_000 for early, late in zip(edges[OPENED], edges[CLOSED], strict=True)
    )
    writes, commits = (late - early for early, late in zip(before, server.commits(), strict=True))
    return Round(told["per_second"], writer, fronts, writes / max(1, commits))


def show(kind: str, alone: list[Round], fronted: list[Round]) -> None:
    """The rounds with the least CPU, and what they come to on more cores.

    The least and not the median: whatever else runs on the machine adds to the CPU of a request, and takes nothing off.
    """
    one = min(alone, key=lambda each: each.writer_us)
    many = min(fronted, key=lambda each: each.writer_us)
    medians = [statistics.median(each.writer_us for each in some) for some in (alone, fronted)]
    print(f"{kind}: one process {one.writer_us:.1f} us, median {medians[0]:.1f}, {one.batch:.0f} writes a commit")
    print(
        f"{kind}: writer {many.writer_us:.1f} us, median {medians[1]:.1f}, {many.batch:.0f} writes a commit; "
        f"fronts {many.fronts_us:.1f} us"
    )
    base = 1e6 / one.writer_us
    for fronts in range(1, MOST_FRONTS + 1):
        rate = min(1e6 / many.writer_us, fronts * 1e6 / many.fronts_us)
        print(
            f"{kind}: {fronts} fronts on {fronts + 1} cores, at most {rate:,.0f}/s, {rate / base:.2f} times one process"
        )


def main() -> None:
    """Measure every kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fronts", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of one measurement")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--only", default="", help="words in the name of a kind")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as made, ExitStack() as stack:
        servers = {count: FrontedServer(Path(made), count) for count in (0, asked.fronts)}
        for server in servers.values():
            stack.callback(server.stop)
        for kind in KINDS:
            if asked.only not in kind:
                continue
            taken: dict[int, list[Round]] = defaultdict(list)
            for _ in range(asked.rounds):
                for count, server in servers.items():
                    taken[count].append(measure(server, kind, asked))
            show(kind, taken[0], taken[asked.fronts])


if __name__ == "__main__":
    main()
