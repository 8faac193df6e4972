"""Where content comes from: an argument, a file or standard input, as exact bytes."""

from __future__ import annotations

import io
import os
import stat
import sys
from typing import BinaryIO

import click

STDIN = "-"


def open_source(text: str | None, file: BinaryIO | None, *, from_stdin: bool) -> BinaryIO | None:
    """The one source that was named, None when there is none."""
    if (text is not None) + (file is not None) + from_stdin > 1:
        raise click.UsageError("Give content once: as text, with --file, or with - from standard input.")
    if from_stdin:
        return sys.stdin.buffer
    return file if text is None else io.BytesIO(os.fsencode(text))


def size_of(source: BinaryIO) -> int | None:
    """How many bytes there will be, None for a pipe or a terminal."""
    try:
        status = os.fstat(source.fileno())
    except (OSError, ValueError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
