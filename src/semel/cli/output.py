"""Output of commands: one JSON object per line for programs, text and a progress bar for people, content byte for byte.

Text from the network cannot control the terminal: characters that do not print are escaped.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any, BinaryIO, Generic, TypeVar
from unicodedata import combining, east_asian_width

import click

T = TypeVar("T")


def printable(text: str) -> str:
    """The text with escapes for characters that do not print."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def shortened(text: str, most: int = 60) -> str:
    """A text cut to some characters."""
    return text if len(text) <= most else f"{text[:most]}..."


def shown_time(ms: int) -> str:
    """Milliseconds since 1970 as a date and time."""
    return datetime.fromtimestamp(ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True)
class Said:
    """The result of a command: facts for programs, and lines for people."""

    facts: Mapping[str, Any]
    lines: str | Iterable[str]
    is_aside: bool = False
    """Whether it goes to standard error, because standard output has the content."""

    def show(self, as_json: bool) -> None:
        """Print it."""
        lines = [self.lines] if isinstance(self.lines, str) else self.lines
        text = json.dumps(dict(self.facts)) if as_json else "\n".join(map(printable, lines))
        click.echo(text, err=self.is_aside)


def coloured(line: str, colour: str | None) -> str:
    """The line in a colour, for a terminal."""
    return line if colour is None else click.style(line, fg=colour)


def facts_text(one: Any) -> str:
    """The JSON of a value that the client has read."""
    return json.dumps(dict(one.facts))


@dataclass(frozen=True)
class Listing(Generic[T]):
    """The items that a command lists: for programs one line of JSON each, for people a table."""

    items: Iterable[T]
    head: tuple[str, ...]
    """The columns; without them each item is a line, printed as it arrives."""
    row: Callable[[T], tuple[object, ...]]
    none: str
    """The sentence if there are no items."""
    text: Callable[[T], str] = facts_text
    """The JSON of an item."""
    most: int | None = None
    more: str = ""
    """The sentence if there are more than `most` items."""
    colour: Callable[[T], str | None] = lambda _: None

    def show(self, as_json: bool) -> None:
        """Print the items."""
        items, shown = iter(self.items), list[tuple[T, tuple[str, ...]]]()
        for one in islice(items, self.most):
            if as_json:
                click.echo(self.text(one))
                continue
            shown.append((one, tuple(printable(str(cell)) for cell in self.row(one))))
            if not self.head:
                click.echo("".join(shown[-1][1]))
        if self.head and shown:
            head, *lines = table(self.head, [row for _, row in shown])
            click.echo(head)
            for (one, _), line in zip(shown, lines, strict=True):
                click.echo(coloured(line, self.colour(one)))
        if not (shown or as_json):
            click.echo(self.none, err=True)
        if self.more and next(items, None) is not None:
            click.echo(self.more, err=True)


@contextmanager
def content_out() -> Iterator[BinaryIO]:
    """Standard output for content. If the reader closes it early, as `head` does, the command ends quietly."""
    out = sys.stdout.buffer
    try:
        yield out
        out.flush()
    except BrokenPipeError:
        # The rest of the buffer cannot be written; the interpreter would report that at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    """Lines with columns as wide as their widest cell; the last column is not padded."""
    widths = [max(map(_columns, cells)) for cells in zip(head, *rows, strict=True)]
    yield click.style(_line(head, widths), bold=True)
    for row in rows:
        yield _line(row, widths)


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    padded = [cell + " " * (width - _columns(cell)) for cell, width in zip(cells, widths, strict=True)]
    return "  ".join(padded).rstrip()


def _columns(text: str) -> int:
    """The width of a text in a terminal: East Asian characters take two columns, combining marks none."""
    return sum(0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text)


SHOW_SECONDS = 0.1


@contextmanager
def progress(size: int | None, label: str) -> Iterator[Callable[[int], None]]:
    """Called with the bytes of each line: a bar of the input's bytes, or a count of lines if its size is unknown."""
    endless: Iterator[int] = (number for number in list[int]())
    hidden = not sys.stderr.isatty()
    with click.progressbar(
        endless, length=size, label=label, show_pos=size is None, file=sys.stderr, hidden=hidden
    ) as bar:
        yield bar.update if size is not None else lambda _: bar.update(1)


@contextmanager
def row_progress(label: str, rows: int | None) -> Iterator[Callable[[int], None]]:
    """Called with the number of rows done: a bar for a terminal, a line for logs, both on standard error."""
    if not sys.stderr.isatty():
        click.echo(label if rows is None else f"{label}: {rows:,} rows", err=True)
        yield lambda _: None
        return
    endless: Iterator[int] = (number for number in list[int]())
    with click.progressbar(endless, length=rows, label=label, show_pos=True, file=sys.stderr) as bar:
        waiting, shown_at = 0, 0.0

        def tell(count: int) -> None:
            # Drawing a bar takes longer than writing a row, so it is drawn a few times per second.
            nonlocal waiting, shown_at
            waiting += count
            if time.monotonic() - shown_at >= SHOW_SECONDS:
                bar.update(waiting)
                waiting, shown_at = 0, time.monotonic()

        yield tell
        bar.update(waiting)


def log_to_stderr(name: str) -> None:
    """Log what `name` logs to standard error, one line each, unless the program has configured logging itself."""
    log = logging.getLogger(name)
    if not log.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
