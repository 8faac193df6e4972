"""`make nightly NAME=mutants`: plant every bug of the table, one at a time, and see that a test notices, or fail.

The sources are copied, the bug is planted in the copy, and the tests of the repository run against it. A bug that no
test notices is printed as a survivor, and so is one that could not be planted or that broke the tests' own collection:
then nothing was shown.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.harness.share import EVERY_CASE
from tests.mutants.planted import BUGS, Bug

ROOT = Path(__file__).parents[2]
SECONDS = 900.0
PARTS = 31
_FAILED = re.compile(r"^FAILED (\S+)", re.MULTILINE)


class PlantError(Exception):
    """A bug that cannot be planted: the text that it replaces is not there once."""


class Caught(NamedTuple):
    """What became of a planted bug."""

    bug: Bug
    by: str
    """The test that noticed; empty for a survivor."""
    why: str
    """Why there is none."""
    seconds: float


def part_of_today() -> int:
    """Which part of the table is due: another one each day."""
    return int(time.time() // 86_400) % PARTS


def some(part: int | None) -> Sequence[Bug]:
    """One part of the table, or all of it."""
    return BUGS if part is None else BUGS[part::PARTS]


@contextmanager
def planted(bug: Bug) -> Iterator[Path]:
    """A copy of the sources with the bug in it."""
    with tempfile.TemporaryDirectory(prefix="semel-mutant-") as folder:
        copy = Path(folder) / "src"
        shutil.copytree(ROOT / "src", copy)  # with compiled modules: only what is edited is compiled again
        for edit in bug.edits:
            path = copy / "semel" / edit.path
            text = path.read_text()
            if text.count(edit.old) != 1:
                raise PlantError(f"{edit.path} has the text to replace {text.count(edit.old)} times: mend the table")
            path.write_text(text.replace(edit.old, edit.new))
            for compiled in path.parent.glob(f"__pycache__/{path.stem}.*"):
                compiled.unlink()
        Path(folder).chmod(0o755)
        yield copy


def try_one(bug: Bug) -> Caught:
    """Plant a bug and run its tests, the first failure ends the run."""
    began = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "-p", "no:cacheprovider", "-rf", *bug.tests]
    try:
        with planted(bug) as sources:
            found = os.environ.get("PYTHONPATH", "")
            # Every case: a bug that one case alone notices is noticed each time.
            env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (str(sources), found))), EVERY_CASE: "1"}
            done = subprocess.run(
                command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=SECONDS, check=False
            )
    except PlantError as error:
        return Caught(bug, "", str(error), time.monotonic() - began)
    except subprocess.TimeoutExpired:
        return Caught(bug, "", f"its tests did not end in {SECONDS:.0f} s", time.monotonic() - began)
    noticed = _FAILED.search(done.stdout)
    if done.returncode == 1 and noticed:
        return Caught(bug, noticed[1], "", time.monotonic() - began)
    why = "no test noticed" if done.returncode == 0 else f"pytest ended with {done.returncode}: {done.stdout[-500:]}"
    return Caught(bug, "", why, time.monotonic() - began)


def told(one: Caught) -> str:
    """One line about it."""
    what = f"caught by {one.by}" if one.by else f"SURVIVED: {one.why}"
    return f"{one.bug.name:44} {one.seconds:6.1f} s  {what}"


def main() -> None:
    """Try all, or one part, or those whose name has a word in it; exit code 1 if one survives."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", help=f"1 to {PARTS} for that part of the table, or today")
    parser.add_argument("--only", default="", help="a word that the names must have in them")
    parser.add_argument("--tests", nargs="*", default=(), help="run these tests in place of those in the table")
    asked = parser.parse_args()
    part = None
    if asked.part:
        part = part_of_today() if asked.part == "today" else int(asked.part) - 1
    bugs = [bug for bug in some(part) if asked.only in bug.name]
    survivors = 0
    for number, bug in enumerate(bugs, start=1):
        one = try_one(bug._replace(tests=tuple(asked.tests) or bug.tests))
        survivors += not one.by
        print(f"{number}/{len(bugs)} {told(one)}", flush=True)
    print(f"{len(bugs)} planted, {len(bugs) - survivors} caught, {survivors} survived")
    sys.exit(1 if survivors or not bugs else 0)


if __name__ == "__main__":
    main()
