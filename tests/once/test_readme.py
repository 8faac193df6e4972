"""The first example of the README charges once, raced and killed; tests/docs/test_pages.py compares what it prints."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent.parent / "README.md").read_text("utf-8")
RACERS = 8


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """The example in a folder of its own."""
    example = re.search(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert example is not None
    path = tmp_path / "shop.py"
    path.write_text(example[1])
    return path


def run(shop: Path, text: str = "") -> subprocess.Popen[str]:
    """Run the example, with more lines below it."""
    program = shop.read_text("utf-8") + text
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", program],
        cwd=shop.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def said_by(process: subprocess.Popen[str]) -> str:
    """What it prints. It must end well."""
    said, faults = process.communicate(timeout=60)
    assert (process.returncode, faults) == (0, "")
    return said


def charges(shop: Path) -> list[tuple[str, int]]:
    connection = sqlite3.connect(shop.parent / "shop.db")
    try:
        return connection.execute("SELECT customer, amount FROM charges").fetchall()
    finally:
        connection.close()


def test_processes_that_race_charge_once(shop: Path) -> None:
    assert len({said_by(process) for process in [run(shop) for _ in range(RACERS)]}) == 1
    assert charges(shop) == [("ada", 5)]


@pytest.mark.parametrize(
    ("line", "kept"), [("attempt.result = ", 0), ("connection.commit()", 0), ("return attempt.result", 1)]
)
def test_a_killed_call_is_charged_once_by_its_retry(shop: Path, line: str, kept: int) -> None:
    whole = shop.read_text("utf-8")
    place = re.search(rf"^( +){re.escape(line)}.*$", whole, re.MULTILINE)
    assert place is not None
    shop.write_text(f"{whole[: place.start()]}{place[1]}import os; os.kill(os.getpid(), 9)\n{whole[place.start() :]}")
    killed = run(shop)
    killed.communicate(timeout=60)
    assert (killed.returncode, len(charges(shop))) == (-9, kept)
    shop.write_text(whole)
    said_by(run(shop))
    assert charges(shop) == [("ada", 5)]


def test_another_amount_with_the_key_is_refused(shop: Path) -> None:
    more = "try:\n    charge('order-7', 'ada', 6)\nexcept once.KeyMismatch:\n    print('refused')\n"
    assert said_by(run(shop, more)).splitlines()[-1] == "refused"
    assert charges(shop) == [("ada", 5)]
