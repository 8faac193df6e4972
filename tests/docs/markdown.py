"""What a page of Markdown has: tables, links, headings, and names in code spans."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md")))
LINKED = (*PAGES, ROOT / "CHANGELOG.md", ROOT / "SECURITY.md")
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]


@cache
def prose(page: Path) -> str:
    """A page without its code blocks and comments."""
    text = re.sub(r"^( *)```.*?^\1```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)


def tables(page: Path, columns: int) -> list[list[str]]:
    """The rows of a page's tables that have this number of columns, without heads and rules."""
    lines = page.read_text("utf-8").split("\n")
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines if line.startswith("|")]
    heads = {number for number, line in enumerate(lines) if re.fullmatch(r"\|(?:-+\|)+", line)}
    numbers = [number for number, line in enumerate(lines) if line.startswith("|")]
    body = [row for number, row in zip(numbers, rows, strict=True) if number not in heads and number + 1 not in heads]
    return [row for row in body if len(row) == columns]


def code(cell: str) -> str:
    """The first code span of a cell; empty without one."""
    found = re.search(r"`([^`]+)`", cell)
    return "" if found is None else found[1]


def spans(page: Path) -> set[str]:
    """The code spans of a page's prose."""
    return {re.sub(r"\s+", " ", span) for span in re.findall(r"`([^`]+)`", prose(page))}


def links(page: Path) -> Iterator[str]:
    """Where a page leads to, but for other sites."""
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if not re.match(r"[a-z]+:", target):
            yield target


@cache
def anchors(page: Path) -> set[str]:
    """The names of a page's headings, as code hosts make them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
