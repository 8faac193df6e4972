"""The long runs: `make nightly NAME=law` runs one, `make nightly` all in turn, `make nightly NAME=list` prints them.

`NAME=model` runs all models. `ARGS="--seeds 100"` is added to each command of a run. `make crash` comes
here too, and `python -m tests.nightly crash-of-commit` kills two surfaces that go with the commit, five times each.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from tests.harness.crash.surfaces import CRASHES
from tests.harness.share import EVERY_CASE

ROOT = Path(__file__).parent.parent
PYTEST = "pytest --numprocesses 4 --dist loadfile --no-loadscope-reorder"


class LongRun(NamedTuple):
    """Modules with their options, run in turn, and what the Makefile must have made before."""

    about: str
    commands: tuple[str, ...]
    needs: str = ""
    """A target of the Makefile."""
    environment: tuple[tuple[str, str], ...] = ()


CONSOLE = "tests/server/console"
APART: Mapping[str, tuple[str, ...]] = {
    "official": ("tests/official",),
    "browser": (
        *(f"{CONSOLE}/test_{name}.py" for name in ("actions", "live", "long_logs", "odd_names", "pages", "shell")),
        "tests/docs/test_site.py",
    ),
    "schemathesis": ("tests/openapi/test_schemathesis.py",),
    "deploy": ("tests/deploy",),
    "crashes": (
        *(f"tests/{name}/crash/test_crash.py" for name in ("streams", "events", "jobs", "ledger", "deltas")),
        "tests/streams/crash/test_lives.py",
        "tests/streams/crash/test_subscriptions.py",
        "tests/streams/forks/test_forks_crash.py",
        "tests/jobs/crash/test_join_crash.py",
        "tests/client/crash",
        "tests/once/shop",
        "tests/failover",
        "tests/store/powercut",
    ),
}
"""Tests that `make test` leaves out unless they are named: files and folders by the name of their run."""

EXPRESS = (
    *(f"tests.{name}.differential" for name in ("streams.rules", "streams.shapes", "jobs.rules", "jobs.shapes")),
    *(f"tests.{name}.differential" for name in ("events.rules", "deltas.rules", "ledger.shapes")),
    "tests.jobs.shapes.bodies",
    "tests.events.rules.plain_messages",
)


def sharing_files() -> str:
    """The test files of which `make test` tries a part of the cases."""
    found = (ROOT / "tests").rglob("test_*.py")
    return " ".join(
        str(one.relative_to(ROOT)) for one in sorted(found) if "tests.harness.share import" in one.read_text()
    )


def apart(name: str, about: str) -> LongRun:
    """The run of tests that `make test` leaves out."""
    return LongRun(about, (f"{PYTEST} {' '.join(APART[name])}",))


RUNS = {
    "official": apart("official", "the conformance suite of Durable Streams, and its official clients"),
    "browser": apart("browser", "the console and the site of the docs in Chromium"),
    "browser-smoke": LongRun("the shell of the console in Chromium", (f"{PYTEST} {CONSOLE}/test_shell.py",)),
    "schemathesis": apart("schemathesis", "requests that schemathesis makes from the OpenAPI document"),
    "deploy": apart("deploy", "the files of deploy/ by their tools, and the steps of the image"),
    "crashes": apart("crashes", "a short round of each crash run, of failovers and of power cuts, as tests"),
    "model-events": LongRun("random commands, clocks and crashes of events against a model", ("tests.events.model",)),
    "model-jobs": LongRun("the same of jobs", ("tests.jobs.model",)),
    "model-ledger": LongRun("the same of the ledger", ("tests.ledger.model",)),
    "model-deltas": LongRun("the same of deltas", ("tests.deltas.model",)),
    "express": LongRun(
        "the express decisions, head shapes and quick parsers beside the full path, a million cases of each",
        tuple(f"{name} --cases 1000000" for name in EXPRESS),
    ),
    "powercut": LongRun("a thousand power cuts under the SQLite store", ("tests.harness.crash powercut",)),
    "fuzz": LongRun("a hundred thousand wrong frames and requests to events", ("tests.events.fuzz",)),
    "law": LongRun("the worst request of every limit against the law of the event loop", ("tests.law.run",)),
    "openapi": LongRun("twenty runs of schemathesis over the OpenAPI document", ("tests.openapi",)),
    "mutants": LongRun("every planted bug, one at a time, is noticed", ("tests.mutants.run",)),
    "exhaustive": LongRun(
        "every case of the tests of which `make test` tries a seventh",
        (f"{PYTEST} {sharing_files()}",),
        environment=((EVERY_CASE, "1"),),
    ),
    "stutter": LongRun(
        "every test while processes of the run are stopped for up to 3 s",
        (f"tests.harness.stutter --longest 3 --every 4 -- {sys.executable} -m {PYTEST}",),
    ),
    "failover": LongRun(
        "twenty failovers of a PostgreSQL under two nodes with load", ("tests.harness.crash failover",)
    ),
    "ha": LongRun(
        "faults of a Patroni cluster under two nodes with load, twenty rounds (Debian 12)",
        ("tests.harness.crash ha --layout direct", "tests.harness.crash ha --layout pgbouncer"),
    ),
    "peers": LongRun(
        "the kill schedule of other idempotency layers, for docs/comparison.md",
        ("tests.once.peers",),
        ".venv-bench/.stamp",
    ),
}

KILLS_OF_COMMIT = 5
"""What each of the two surfaces has to stand that a commit is tried with."""


def run(name: str, more: list[str]) -> int:
    """Run one of the table; the exit code of its first command that failed."""
    found = RUNS[name]
    if found.needs and subprocess.run(["make", found.needs], cwd=ROOT, check=False).returncode:
        return 1
    for command in found.commands:
        print(f"-- {name}: {command[:100]}", flush=True)
        words = [sys.executable, "-m", *command.split(), *more]
        code = subprocess.run(words, cwd=ROOT, env=os.environ | dict(found.environment), check=False).returncode
        if code:
            return code
    return 0


def crash(surface: str, kills: str, store: str, seed: str = "1") -> int:
    """Kill servers of a surface."""
    if surface not in CRASHES:
        sys.exit(f"There is no {surface!r} here; take one of: {' '.join(CRASHES)}")
    words = [surface, "--kills", kills, "--store", store, "--seed", seed]
    return subprocess.run([sys.executable, "-m", "tests.harness.crash", *words], cwd=ROOT, check=False).returncode


def crash_of_commit(commit: str) -> int:
    """A few kills of two surfaces, which go with the commit: each commit has its own, and the same again."""
    number = int(commit, 16)
    pairs = list(combinations(CRASHES, 2))
    pair = pairs[number % len(pairs)]
    print(f"-- crash-of-commit {commit[:8]}: {' and '.join(pair)}", flush=True)
    codes = [crash(surface, str(KILLS_OF_COMMIT), "sqlite", str(number % 1_000)) for surface in pair]
    return max(codes)


def main(words: list[str]) -> int:
    """Run what is named, or everything; everything runs to its end, and says at last what failed."""
    if words[:1] == ["crash"]:
        return crash(*words[1:])
    if words[:1] == ["crash-of-commit"]:
        named = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True)
        return crash_of_commit(named.stdout.strip())
    name, more = (words[0], words[1:]) if words else ("", [])
    if name == "list":
        for known, found in RUNS.items():
            print(f"{known:<14}{found.about}")
        return 0
    chosen = [name] if name in RUNS else [one for one in RUNS if not name or one.startswith(f"{name}-")]
    if not chosen:
        sys.exit(f"There is no {name!r} here; take one of: {' '.join(RUNS)}")
    failed = [one for one in chosen if run(one, more)]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
