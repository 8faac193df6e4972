"""The benchmarks of the ledger run: small ones, whose figures mean nothing and are not looked at."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from bench.ledger_stores import PLACE, Size, ledger
from semel.surfaces.ledger.reading import tip

ROOT = Path(__file__).parent.parent.parent
PATIENCE_SECONDS = 240

pytestmark = pytest.mark.timeout(PATIENCE_SECONDS + 60)


def run(module: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *options],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )


def rows(printed: str) -> list[list[str]]:
    """The cells of every table."""
    tables = [line.split("|")[1:-1] for line in printed.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in cells] for cells in tables]


@pytest.mark.parametrize(
    ("store", "measures"),
    [("SQLite", ("write", "keyed", "batch", "duplicate")), ("PostgreSQL", ("write",))],
    ids=["sqlite", "postgres"],
)
def test_transactions(store: str, measures: tuple[str, ...]) -> None:
    asked = [option for one in measures for option in ("--measure", one)]
    done = run("bench.ledger", "--rounds", "1", "--seconds", "0.3", "--at-once", "2", "--store", store, *asked)
    assert done.returncode == 0, done.stderr
    wanted = [("http", "append to a stream"), *((wire, one) for one in measures for wire in ("http", "grpc"))]
    assert [(row[0], (row[1], row[2])) for row in rows(done.stdout)[2:]] == [(store, one) for one in wanted]


def test_growth(tmp_path: Path) -> None:
    picture = tmp_path / "curve.svg"
    sizes = ("--blocks", "10", "20", "--keys", "1000", "2000")
    done = run("bench.ledger_growth", "--rounds", "1", *sizes, "--keep", str(tmp_path), "--picture", str(picture))
    assert "target" in done.stdout, done.stderr  # the exit code says whether it was met, which is not asked here
    assert [row[0] for row in rows(done.stdout)][-2:] == ["1,000", "2,000"]
    assert ET.parse(picture).getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_a_kept_ledger_is_made_once(tmp_path: Path) -> None:
    times = []
    for _ in range(2):
        with ledger(tmp_path, Size(3, 2)) as site, site.reading() as reading:
            assert tip(reading, PLACE).height == 3
        times.append((tmp_path / "3-6" / "made.json").stat().st_mtime_ns)
    assert times[0] == times[1]
