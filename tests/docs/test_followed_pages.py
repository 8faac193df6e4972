"""Pages that are followed from their beginning: what they say comes out does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.reader import follow

DOCS = Path(__file__).parent.parent.parent / "docs"
FOLLOWED = {
    "tutorial.md": 8,
    "howto/fastapi.md": 6,
    "howto/django.md": 5,
    "howto/failover-drill.md": 5,
    "howto/restore-drill.md": 4,
}
"""Pages, and how many blocks each has at least."""

CHANGING = {
    "instant": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z",
    "sha256": r"[0-9a-f]{64}",
    "epoch": r"1[0-9]{12}(?:000)?",
    "bytes": r"\d+(?:,\d+)* bytes",
    "rows read": r"\d+ rows read in \d+\.\d s",
}
"""What differs from run to run."""


@pytest.mark.parametrize(("name", "least"), FOLLOWED.items(), ids=list(FOLLOWED))
def test_a_reader_sees_what_the_page_shows(name: str, least: int, tmp_path: Path) -> None:
    assert follow(DOCS / name, tmp_path, CHANGING) >= least
