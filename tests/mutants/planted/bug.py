"""What a planted bug is."""

from __future__ import annotations

from typing import NamedTuple


class Edit(NamedTuple):
    """One replacement in a file below `src/semel`."""

    path: str
    old: str
    new: str


class Bug(NamedTuple):
    """One broken promise, and where it must be noticed."""

    name: str
    promise: str
    """The promise that it breaks."""
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]
    """What is run, as pytest names it; one failure is enough."""


def bug(name: str, promise: str, path: str, old: str, new: str, *tests: str) -> Bug:
    """A bug that is one replacement."""
    return Bug(name, promise, (Edit(path, old, new),), tests)
