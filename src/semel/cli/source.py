"""Sources of content: an argument, a file or standard input as exact bytes, lines, and the texts of a JSON array.

An endless input, or one without line breaks, is refused at a size limit. Elements of an array keep their
original text, so that no number changes.
"""

from __future__ import annotations

import io
import os
import re
import stat
import sys
from collections.abc import Iterator
from typing import IO, BinaryIO, Protocol, cast

import click

from semel.client.json_text import members as members  # noqa: PLC0414 - commands import it from here
from semel.client.json_text import scanner

STDIN = "-"
LARGEST_BYTES = 256 * 1024 * 1024  # more than the default limit of a server for all its uploads together


def open_source(text: str | None, file: BinaryIO | None, *, from_stdin: bool) -> BinaryIO | None:
    """The source that the options name, or None."""
    if (text is not None) + (file is not None) + from_stdin > 1:
        raise click.UsageError("Give content once: as text, with --file, or with - from standard input.")
    if from_stdin:
        return sys.stdin.buffer
    return file if text is None else io.BytesIO(os.fsencode(text))


def read_whole(source: IO[bytes]) -> bytes:
    """The whole content."""
    return _bounded(source.read(LARGEST_BYTES + 1), "The content")


def read_lines(source: BinaryIO) -> Iterator[bytes]:
    """The lines as they arrive, each with its line break."""
    while line := _bounded(source.readline(LARGEST_BYTES + 1), "A line"):
        yield line


def _bounded(content: bytes, what: str) -> bytes:
    if len(content) > LARGEST_BYTES:
        raise click.ClickException(f"{what} is larger than {LARGEST_BYTES // 1024**2} MiB: split it.")
    return content


def size_of(source: BinaryIO) -> int | None:
    """The size in bytes; None for a pipe or a terminal."""
    try:
        status = os.fstat(source.fileno())
    except (OSError, ValueError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


CHUNK_BYTES = 256 * 1024


class _BufferedSource(Protocol):
    def read1(self, size: int, /) -> bytes:
        """Read the available bytes; wait only if there are none; empty at the end."""


def line_groups(source: BinaryIO) -> Iterator[list[bytes]]:
    """All lines of an input, each with its line break."""
    arriving = cast(_BufferedSource, source)
    begun: list[bytes] = []
    while chunk := arriving.read1(CHUNK_BYTES):
        begun.append(chunk)
        if b"\n" in chunk:
            *lines, rest = b"".join(begun).split(b"\n")
            begun = [rest]
            yield [line + b"\n" for line in lines]
        elif sum(map(len, begun)) > LARGEST_BYTES:
            raise click.ClickException(f"A line is larger than {LARGEST_BYTES // 1024**2} MiB: split it.")
    last = b"".join(begun)
    if last:
        yield [last]


_BETWEEN = re.compile(r"[ \t\r\n]*,?[ \t\r\n]*")
_LINE_ENDS = str.maketrans("\r\n", "  ")


def messages(array: bytes) -> Iterator[str]:
    """The texts of an array's elements, one line each."""
    try:
        for start, end, text in _elements(array.decode("utf-8")):
            # A line break inside a string would be an escape, so this changes only white space.
            yield text[start:end].translate(_LINE_ENDS)
    except ValueError:
        raise click.ClickException("The server sent content that is not a JSON array.") from None


def _elements(text: str) -> Iterator[tuple[int, int, str]]:
    at = _past_comma(text, text.index("[") + 1)
    while text[at : at + 1] != "]":
        _, end = scanner.raw_decode(text, at)
        yield at, end, text
        at = _past_comma(text, end)


def _past_comma(text: str, at: int) -> int:
    found = _BETWEEN.match(text, at)
    return at if found is None else found.end()
