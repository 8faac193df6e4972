"""The parts of the README that the first page of the documentation shows too, so that they are written once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def first_example() -> Iterator[str]:
    """The example of the library, with what is said of it."""
    yield from _section("In your own program").splitlines()


def promises() -> Iterator[str]:
    """What is promised and what is not."""
    yield f"## What is promised\n\n{_section('What is promised')}"
    yield f"\n## What is not promised\n\n{_section('What is not promised')}"


def _section(heading: str) -> str:
    """The text below a heading of the README, with the links as a page of `docs` has them."""
    found = re.search(rf"^## {heading}\n(.*?)^## ", README.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert found is not None, heading
    return found[1].strip().replace("](docs/", "](")
