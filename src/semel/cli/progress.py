"""How far a long input has come: a bar on a terminal, silence elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click


@contextmanager
def progress(size: int | None, label: str) -> Iterator[Callable[[int], None]]:
    """Told the bytes of each line: a bar of the input's bytes, or a count of lines where the end is not known."""
    endless: Iterator[int] = (number for number in list[int]())
    hidden = not sys.stderr.isatty()
    with click.progressbar(
        endless, length=size, label=label, show_pos=size is None, file=sys.stderr, hidden=hidden
    ) as bar:
        yield bar.update if size is not None else lambda _: bar.update(1)
