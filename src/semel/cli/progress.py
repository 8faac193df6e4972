"""Progress of long commands: a bar on a terminal; elsewhere nothing, or one line."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

SHOW_SECONDS = 0.1


@contextmanager
def progress(size: int | None, label: str) -> Iterator[Callable[[int], None]]:
    """Told the bytes of each line: a bar of the input's bytes, or a count of lines where the end is not known."""
    endless: Iterator[int] = (number for number in list[int]())
    hidden = not sys.stderr.isatty()
    with click.progressbar(
        endless, length=size, label=label, show_pos=size is None, file=sys.stderr, hidden=hidden
    ) as bar:
        yield bar.update if size is not None else lambda _: bar.update(1)


@contextmanager
def row_progress(label: str, rows: int | None) -> Iterator[Callable[[int], None]]:
    """Told how many rows are done: a bar for people, a line for logs; the answer alone goes to standard output."""
    if not sys.stderr.isatty():
        click.echo(label if rows is None else f"{label}: {rows:,} rows", err=True)
        yield lambda _: None
        return
    endless: Iterator[int] = (number for number in list[int]())
    with click.progressbar(endless, length=rows, label=label, show_pos=True, file=sys.stderr) as bar:
        pace = _Pace(bar.update)
        yield pace.tell
        pace.show()


class _Pace:
    """Shows progress a few times a second: drawing a bar takes longer than writing a row."""

    def __init__(self, show: Callable[[int], None]) -> None:
        self._show = show
        self._waiting = 0
        self._shown_at = 0.0

    def tell(self, count: int) -> None:
        self._waiting += count
        if time.monotonic() - self._shown_at >= SHOW_SECONDS:
            self.show()

    def show(self) -> None:
        self._show(self._waiting)
        self._waiting = 0
        self._shown_at = time.monotonic()
