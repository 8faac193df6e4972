"""What pages have from the tables of the code is what `make diagrams` writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.generate import DOCS, PAGES, PARTS, parts_of, rewritten


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_are_as_they_are_made(page: Path) -> None:
    text = page.read_text("utf-8")
    assert parts_of(text), "nothing in it is made"
    assert rewritten(text) == text, "`make diagrams` mends this"


def test_every_part_stands_on_one_page() -> None:
    marked = [name for page in DOCS.rglob("*.md") for name in parts_of(page.read_text("utf-8"))]
    assert sorted(marked) == sorted(PARTS)


def test_only_what_stands_between_the_marks_is_replaced() -> None:
    page = "before\n\n<!-- made: state table -->\n\n| old |\n\n<!-- end -->\n\nbehind\n"
    before, made, behind = rewritten(page).partition("\n".join(PARTS["state table"]()))
    assert (before, behind) == ("before\n\n<!-- made: state table -->\n\n", "\n\n<!-- end -->\n\nbehind\n")
    assert "`lease_exhausted`" in made


def test_a_part_of_no_name_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        rewritten("<!-- made: something else -->\n<!-- end -->\n")
