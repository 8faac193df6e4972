"""Every page does what it says: its programs run, its commands answer as shown, its files can be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.page import ROOT, run

PAGES = ("README.md", "CONTRIBUTING.md", *sorted(str(one.relative_to(ROOT)) for one in (ROOT / "docs").rglob("*.md")))


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_true(page: str, tmp_path: Path) -> None:
    failures = run(ROOT / page, tmp_path)
    assert not failures, "\n\n".join(map(str, failures))
