"""Output of commands: one JSON object a line for programs, plain text for people, content byte for byte.

Names and sentences that came over the network cannot steer a terminal: what does not print is shown as its code.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, TypeVar
from unicodedata import combining, east_asian_width

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def with_json(command: Command) -> Command:
    """Adds `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a line.")(command)


def say(as_json: bool, facts: dict[str, Any], sentence: str) -> None:
    """Print the outcome of a command, as JSON or as a sentence."""
    click.echo(json.dumps(facts) if as_json else sentence)


def printable(text: str) -> str:
    """The text with control characters, and what else does not print, as escapes."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


@contextmanager
def content_out() -> Iterator[BinaryIO]:
    """Standard output for content; a reader that has seen enough, as `head` has, ends the command quietly."""
    out = sys.stdout.buffer
    try:
        yield out
        out.flush()
    except BrokenPipeError:
        # What is still buffered has nowhere to go; the interpreter would complain about that when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    """Lines with columns as wide as their widest cell; the last one is not padded."""
    widths = [max(map(_columns, cells)) for cells in zip(head, *rows, strict=True)]
    yield click.style(_line(head, widths), bold=True)
    for row in rows:
        yield _line(row, widths)


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    padded = [cell + " " * (width - _columns(cell)) for cell, width in zip(cells, widths, strict=True)]
    return "  ".join(padded).rstrip()


def _columns(text: str) -> int:
    """How wide a terminal shows it: East Asian letters take two columns, combining marks none."""
    return sum(0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text)
