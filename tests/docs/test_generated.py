"""The generated parts of the documentation are up to date: `make docs` writes them from the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.generate import DOCS, LIMITS, PAGES, PARTS, drawings, parts_of, rewritten, with_limits


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_are_as_they_are_made(page: Path) -> None:
    text = page.read_text("utf-8")
    assert parts_of(text), "nothing in it is made"
    assert rewritten(text) == text, "`make docs` mends this"


def test_drawings_are_as_they_are_made() -> None:
    assert [path.name for path, drawing in drawings() if path.read_text("utf-8") != drawing] == []


def test_limits_have_the_numbers_of_the_code() -> None:
    text = LIMITS.read_text("utf-8")
    assert with_limits(text) == text, "`make docs` mends this"


def test_a_limit_with_an_old_number_gets_the_number_of_the_code() -> None:
    rows = (
        "| length of an `Idempotency-Key` | `1` characters | | x | y |\n| body | `2` bytes | `SEMEL_MAX_BODY_BYTES` |\n"
    )
    assert with_limits(rows) == (
        "| length of an `Idempotency-Key` | `256` characters | | x | y |\n"
        "| body | `16777216` bytes | `SEMEL_MAX_BODY_BYTES` |\n"
    )


def test_a_limit_that_is_neither_a_constant_nor_a_setting_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        with_limits("| something else | `1` | | none | - |\n")


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
