"""Sources of content: an argument, a file or standard input, as exact bytes or as lines.

An endless input, or one without line breaks, is refused at a size limit.
"""

from __future__ import annotations

import io
import os
import stat
import sys
from collections.abc import Iterator
from typing import IO, BinaryIO, Protocol, cast

import click

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


def read_file(name: str) -> bytes:
    """The whole content of a file; - is standard input."""
    try:
        with click.open_file(name, "rb") as source:
            return read_whole(source)
    except OSError as error:
        raise click.ClickException(f"{name} cannot be read: {error.strerror}.") from None


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


class ArrivingBytes(Protocol):
    """An input that is read as it arrives."""

    def read1(self, size: int, /) -> bytes:
        """Read the available bytes; wait only if there are none; empty at the end."""


def line_groups(source: BinaryIO | ArrivingBytes) -> Iterator[list[bytes]]:
    """All lines of an input, each with its line break."""
    arriving = cast(ArrivingBytes, source)
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
