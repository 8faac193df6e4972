"""The glossary names modules that exist, and each look-up of a newcomer finds its word there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.docs.test_docs import code, tables

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs/internals/glossary.md"
SOURCE = ROOT / "src/semel"

WORDS, _, LOOK_UPS = PAGE.read_text("utf-8").partition("## The look-up test")
QUESTIONS = [row for row in tables(PAGE, 3) if row[0].endswith("?")]


def test_the_glossary_has_every_word_once() -> None:
    words = [word for row in tables(PAGE, 3) if not row[0].endswith("?") for word in row[0].split(", ")]
    assert 60 <= len(words) <= 85
    assert len(set(words)) == len(words)


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([\w/]+\.py)`", WORDS))))
def test_a_word_lives_in_a_module_that_exists(path: str) -> None:
    assert (SOURCE / path).is_file()


def test_there_are_22_questions() -> None:
    assert len(QUESTIONS) == 22


@pytest.mark.parametrize("row", QUESTIONS, ids=lambda row: row[0])
def test_a_look_up_finds_its_word(row: list[str]) -> None:
    _, words, path = row
    module = SOURCE / code(path)
    assert module.is_file()
    docstring = ast.get_docstring(ast.parse(module.read_text("utf-8"))) or ""
    known = f"{module.stem.replace('_', ' ')} {docstring}".lower()
    assert words in re.sub(r"\s+", " ", known)
