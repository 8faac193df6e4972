"""The root command starts light."""

from __future__ import annotations

import subprocess
import sys

import pytest

from semel import __version__
from tests.cli.command import SECONDS

PROBE = """
import sys
from semel.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit:
    print(",".join(sorted({"uvicorn", "apsw", "asyncio"} & set(sys.modules))))
"""


@pytest.mark.parametrize(
    ("args", "loaded"),
    [
        (["--version"], ""),
        (["streams", "--help"], ""),
        (["events", "--help"], ""),
        (["jobs", "--help"], ""),
        (["ledger", "--help"], ""),
        (["ledger", "write", "--help"], ""),
        (["deltas", "--help"], ""),
        (["deltas", "pull", "--help"], ""),
    ],
)
def test_loads_no_more_than_it_needs(args: list[str], loaded: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROBE, *args], capture_output=True, text=True, timeout=SECONDS, check=True
    )
    assert run.stdout.splitlines()[-1] == loaded


def test_version() -> None:
    run = subprocess.run([sys.executable, "-m", "semel", "--version"], capture_output=True, text=True, check=True)
    assert run.stdout == f"semel, version {__version__}\n"
