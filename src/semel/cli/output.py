"""Output of commands: one JSON object per line for programs, text and a progress bar for people, content byte for byte.

Text from the network cannot control the terminal: characters that do not print are escaped.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, BinaryIO, TypeVar
from unicodedata import combining, east_asian_width

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def with_json(command: Command) -> Command:
    """Adds `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per line.")(command)


def say(as_json: bool, facts: dict[str, Any], sentence: str) -> None:
    """Print the result of a command as JSON or as a sentence."""
    click.echo(json.dumps(facts) if as_json else sentence)


def printable(text: str) -> str:
    """The text with escapes for characters that do not print."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def shown_time(ms: int) -> str:
    """Milliseconds since 1970 as a date and time."""
    return datetime.fromtimestamp(ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


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


def show_table(head: tuple[str, ...], rows: Iterable[tuple[object, ...]], none: str) -> None:
    """Print a table, or a sentence to standard error if there are no rows."""
    cells = [tuple(printable(str(cell)) for cell in row) for row in rows]
    if not cells:
        click.echo(none, err=True)
        return
    for line in table(head, cells):
        click.echo(line)


def confirmed(about: Callable[[], str], facts: dict[str, Any], *, yes: bool, dry_run: bool, as_json: bool) -> bool:
    """Whether to delete what `about` names: asks at a terminal; a dry run prints it and is no confirmation."""
    if not (yes or dry_run or sys.stdin.isatty()):
        raise click.UsageError("Deleting cannot be undone: give --yes if standard input is not a terminal.")
    if yes and not dry_run:
        return True
    words = printable(about())
    if dry_run:
        say(as_json, {**facts, "deleted": False, "dry_run": True}, f"Would delete {words}")
        return False
    click.echo(words, err=True)
    return click.confirm("Delete it?", abort=True, err=True)


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
        pace = _Pace(bar.update)
        yield pace.tell
        pace.show()


class _Pace:
    """Limits updates to a few per second: drawing a bar takes longer than writing a row."""

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
