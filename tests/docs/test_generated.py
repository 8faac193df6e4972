"""The generated parts of the documentation are up to date: `make docs` writes them from the code.

So every error, setting, limit, metric, command, operation and public name has its row: the parts are made from all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from docs.generate import DOCS, PAGES, PARTS, parts_of, rewritten
from docs.site.inline import DARK, LIGHT, style


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_are_as_they_are_made(page: Path) -> None:
    text = page.read_text("utf-8")
    assert parts_of(text), "nothing in it is made"
    assert rewritten(text) == text, "`make docs` mends this"


DRAWINGS = [path for path in DOCS.rglob("*.svg") if "static" not in path.parts]


@pytest.mark.parametrize("path", DRAWINGS, ids=lambda path: path.name)
def test_a_drawing_is_named_and_has_the_colours_of_light_and_dark_paper(path: Path) -> None:
    text = path.read_text("utf-8")
    assert style() in text
    assert set(re.findall(r"var\(--(\w+)\)", text)) <= set(LIGHT)
    assert re.search(r"<title>\S[^<]+</title>", text)
    assert f"({path.name})" in "".join(page.read_text("utf-8") for page in path.parent.glob("*.md"))


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


def luminance(colour: str) -> float:
    """The relative luminance of a colour, as WCAG defines it."""
    shares = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (share / 12.92 if share <= 0.03928 else ((share + 0.055) / 1.055) ** 2.4 for share in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_the_words_of_drawings_stand_out_from_their_paper(colours: Mapping[str, str]) -> None:
    words = [name for name in colours if name not in ("paper", "fill", "line")]
    for paper in ("paper", "fill"):
        for name in words:
            low, high = sorted(luminance(colours[one]) for one in (paper, name))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (name, paper)
