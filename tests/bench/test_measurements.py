"""`python -m bench`: every name leads to a module that can be run, and `make bench` knows which need the peers."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.__main__ import MEASUREMENTS

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("what", ["all", "once", "memory"])
def test_a_measurement_tells_its_options(what: str) -> None:
    command = [sys.executable, "-m", "bench", what, "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "usage:" in done.stdout


def test_every_measurement_is_a_module_that_runs_by_itself() -> None:
    for module, *_ in MEASUREMENTS.values():
        assert 'if __name__ == "__main__":' in (ROOT / "bench" / f"{module.replace('.', '/')}.py").read_text(), module


def test_an_unknown_measurement_is_refused_with_the_names() -> None:
    command = [sys.executable, "-m", "bench", "nothing"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert ", ".join(MEASUREMENTS) in done.stderr


def test_make_installs_the_peers_for_the_suite_alone() -> None:
    listed = re.search(r"^BESIDE = \$\(if \$\(filter-out ([\w ]+),", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert listed is not None
    assert listed[1].split() == [name for name, (module, *_) in MEASUREMENTS.items() if module != "suite.run"]
