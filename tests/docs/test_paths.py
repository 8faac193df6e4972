"""Every module and folder of the source that a page names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SOURCE = ROOT / "src/semel"
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
COMMON = (ROOT, ROOT / "tests", SOURCE, SOURCE / "surfaces")
OWN = {"docs", "internals"}
"""Folders whose pages speak of our files alone; a guide may name files of its reader, without a folder."""


def named(text: str) -> set[str]:
    """Python files and folders of the source that a page names in code spans, without the names of tests in them."""
    spans = {span.partition("::")[0] for span in re.findall(r"`([^`\n]+)`", re.sub(r"(?ms)^```.*?^```$", "", text))}
    files = {span for span in spans if re.fullmatch(r"[\w./]+\.py", span)}
    roots = "|".join(path.name for path in sorted(SOURCE.iterdir()) if path.is_dir() and path.name != "once")
    return files | {span for span in spans if re.fullmatch(rf"(?:src/semel|{roots}|contracts)(?:/\w+)*/?", span)}


def places(text: str) -> list[Path]:
    """Where the files of a page may be: a table may say that its modules are those of one folder."""
    said = re.findall(r"^\| module of `([\w/]+)`", text, re.MULTILINE)
    return [*COMMON, *(SOURCE / folder for folder in said)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_of_a_page_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    folders = places(text)
    missing = [name for name in sorted(named(text)) if not any((folder / name).exists() for folder in folders)]
    is_own = page.parent.name in OWN and page.name != "testing.md"  # which names the tests of a folder
    assert [name for name in missing if is_own or "/" in name] == []


def test_a_path_of_the_old_tree_is_noticed() -> None:
    assert named("see `contracts/jobs` and `server/jobs/desk.py`") == {"contracts/jobs", "server/jobs/desk.py"}
