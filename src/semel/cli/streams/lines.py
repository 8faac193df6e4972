"""Import of lines: each is an append with a key of its own, made from a base key and the line's number.

Running it again with the same base key appends what is missing and doubles nothing, wherever the first run stopped, for
as long as the server honours keys (a day, unless it was set up otherwise). A line that has changed since is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

import click

from semel.cli.connection import Answer
from semel.cli.failures import RequestError
from semel.cli.keys import line_key
from semel.cli.progress import progress
from semel.cli.streams.appending import Target
from semel.cli.streams.resource import is_json
from semel.cli.streams.source import read_lines, size_of


@dataclass
class Tally:
    """The outcome of the lines so far; `line` is the current one."""

    line: int = 0
    stored: int = 0
    replayed: int = 0
    last: Answer | None = None

    def count(self, answer: Answer) -> None:
        """Take in the answer to one line."""
        self.last = answer
        if answer.is_true("Idempotency-Replayed"):
            self.replayed += 1
        else:
            self.stored += 1


def append_lines(target: Target, base: str, source: BinaryIO, *, closes: bool) -> Tally:
    """Append every line in order, then close the stream if requested."""
    tally = Tally()
    with _resumable(tally, base), progress(size_of(source), "Appending") as advance:
        for line in read_lines(source):
            tally.line += 1
            content = _content(line, target.content_type)
            if content:
                tally.count(target.append(line_key(base, tally.line), content, {}))
            advance(len(line))
        if closes:
            tally.last = target.append(line_key(base, "close"), None, {"Stream-Closed": b"true"})
    return tally


def _content(line: bytes, content_type: str) -> bytes:
    """JSON needs no line ends, and an empty line is no message; elsewhere a line end is content like the rest."""
    return line.strip() if is_json(content_type) else line


@contextmanager
def _resumable(tally: Tally, base: str) -> Iterator[None]:
    """Says how to go on when something ends the import early."""
    advice = f"What came before is stored: run this again with --key {base}, and nothing is doubled."
    try:
        yield
    except RequestError as error:
        raise click.ClickException(f"Line {tally.line}: {error.message} {advice}") from error
    except KeyboardInterrupt:
        raise click.ClickException(f"Stopped at line {tally.line}. {advice}") from None
