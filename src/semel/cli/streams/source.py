"""Input content: from an argument, a file or standard input, as exact bytes.

An input without an end, or without line ends, is refused at a limit instead of filling the memory.
"""

from __future__ import annotations

import io
import os
import stat
import sys
from collections.abc import Iterator
from typing import IO, BinaryIO

import click

STDIN = "-"
LARGEST_BYTES = 256 * 1024 * 1024  # more than a server holds for all its uploads together, unless it was told to


def open_source(text: str | None, file: BinaryIO | None, *, from_stdin: bool) -> BinaryIO | None:
    """The one source that was named, None when there is none."""
    if (text is not None) + (file is not None) + from_stdin > 1:
        raise click.UsageError("Give content once: as text, with --file, or with - from standard input.")
    if from_stdin:
        return sys.stdin.buffer
    return file if text is None else io.BytesIO(os.fsencode(text))


def read_whole(source: IO[bytes]) -> bytes:
    """All of it, as the content of one request."""
    return _bounded(source.read(LARGEST_BYTES + 1), "The content")


def read_lines(source: BinaryIO) -> Iterator[bytes]:
    """The lines as they arrive, each with its end."""
    while line := _bounded(source.readline(LARGEST_BYTES + 1), "A line"):
        yield line


def _bounded(content: bytes, what: str) -> bytes:
    if len(content) > LARGEST_BYTES:
        raise click.ClickException(f"{what} is larger than {LARGEST_BYTES // 1024**2} MiB; split it.")
    return content


def size_of(source: BinaryIO) -> int | None:
    """How many bytes there will be, None for a pipe or a terminal."""
    try:
        status = os.fstat(source.fileno())
    except (OSError, ValueError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
