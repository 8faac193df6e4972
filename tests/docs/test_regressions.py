"""The page of defects that must not return names tests that there are, and leaves no number out."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

TESTS = Path(__file__).parent.parent
PAGE = TESTS.parent / "docs" / "internals" / "regressions.md"
COUNTS = {"A": 5, "B": 9, "C": 6, "D": 8, "E": 5, "F": 5, "G": 7}
CUT = {"D7"}
"""What these were about is no longer there."""
ROW = re.compile(r"^\| (\w+) \| .* \| (.*) \|$", re.MULTILINE)
TEST = re.compile(r"`([\w/]+\.py)::(test_\w+)`")


def test_every_defect_has_a_line() -> None:
    numbers = chain.from_iterable([f"{letter}{n}" for n in range(1, count + 1)] for letter, count in COUNTS.items())
    assert set(numbers) - CUT <= {number for number, _ in ROW.findall(PAGE.read_text())}


def test_every_test_that_is_named_is_there() -> None:
    named = [(number, TEST.findall(cell)) for number, cell in ROW.findall(PAGE.read_text())]
    assert len(named) > sum(COUNTS.values()) - len(CUT)
    for number, tests in named:
        assert tests, number
        for file, name in tests:
            assert f"def {name}(" in (TESTS / file).read_text(), (number, file, name)
