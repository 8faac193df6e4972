"""`make nightly NAME=mutants`: plant every bug, one at a time, and see that a test notices, or fail.

A run of the tests gets a folder with a `sitecustomize` on its path and the name of a plant in its environment
(`planting`), so the bug is in the tests' own process and in every server, command and fork that they start. A bug that
no test notices is printed as a survivor, and so is one that was planted nowhere or that broke the tests' own
collection: then nothing was shown.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.harness.share import EVERY_CASE
from tests.mutants.plant import Plant
from tests.mutants.planting import FILE, INSTALLED, MISSING, NAME, planted_environment
from tests.mutants.plants import PLANTS

ROOT = Path(__file__).parents[2]
SITE = Path(__file__).parent / "site"
SECONDS = 900.0
WHOLE_SUITE_SECONDS = 14_400.0
_NOTICED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)
_WHY = re.compile(r"^\S+:\d+: (.*)$", re.MULTILINE)


class Caught(NamedTuple):
    """What became of a plant."""

    plant: Plant
    by: str
    """The test that noticed; empty for a survivor."""
    why: str
    """How it failed, or why there is none."""
    seconds: float


def try_one(plant: Plant, tests: tuple[str, ...]) -> Caught:
    """Plant a bug and run these tests; the first failure ends the run."""
    began = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=line", "-p", "no:cacheprovider", "-rfE", *tests]
    with tempfile.TemporaryDirectory(prefix="semel-plant-") as folder:
        Path(folder).chmod(0o777)
        noted = Path(folder) / "noted"
        noted.touch(0o666)
        # Every case, whatever the day: a bug that one case alone notices is noticed each time.
        variables = {NAME: plant.name, FILE: str(noted), EVERY_CASE: "1"}
        env = planted_environment(os.environ, str(SITE), variables)
        limit = WHOLE_SUITE_SECONDS if tests == ("tests",) else SECONDS
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=limit, check=False
            )
        except subprocess.TimeoutExpired:
            return Caught(plant, "", f"its tests did not end in {limit:.0f} s", time.monotonic() - began)
        seconds = time.monotonic() - began
        fault = _fault(plant, noted.read_text())
    if fault:
        return Caught(plant, "", fault, seconds)
    noticed = _NOTICED.search(done.stdout)
    if done.returncode == 1 and noticed:
        reason = _WHY.search(done.stdout)
        return Caught(plant, noticed[1], reason[1] if reason else "", seconds)
    why = "no test noticed" if done.returncode == 0 else f"pytest ended with {done.returncode}: {done.stdout[-500:]}"
    return Caught(plant, "", why, seconds)


def _fault(plant: Plant, noted: str) -> str:
    """Why this run shows nothing about the plant; empty if the bug was really there."""
    lines = [line.split() for line in noted.splitlines()]
    missing = [line[1] for line in lines if line[0] == MISSING]
    if missing:
        return f"there is no {missing[0]}: mend the plant"
    installed = {line[1] for line in lines if line[0] == INSTALLED}
    absent = [target for target, _ in plant.targets if target not in installed]
    return f"planted nowhere: no process imported {' and '.join(absent)}" if len(absent) == len(plant.targets) else ""


def told(one: Caught) -> str:
    """One line about it."""
    what = f"noticed by {one.by} ({one.why[:200]})" if one.by else f"SURVIVED: {one.why}"
    return f"{one.plant.name:48} {one.seconds:6.1f} s  {what}"


def main() -> None:
    """Try all, or those whose name has a word in it; exit code 1 if one survives."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a word that the names must have in them")
    parser.add_argument("--tests", nargs="*", default=(), help="run these tests in place of those of the plant")
    parser.add_argument("--all-tests", action="store_true", help="run the whole suite for each plant")
    wanted = parser.parse_args()
    plants = [plant for plant in PLANTS if wanted.only in plant.name]
    survivors = 0
    for number, plant in enumerate(plants, start=1):
        one = try_one(plant, ("tests",) if wanted.all_tests else tuple(wanted.tests) or plant.tests)
        survivors += not one.by
        print(f"{number}/{len(plants)} {told(one)}", flush=True)
    print(f"{len(plants)} planted, {len(plants) - survivors} noticed, {survivors} survived")
    sys.exit(1 if survivors or not plants else 0)


if __name__ == "__main__":
    main()
