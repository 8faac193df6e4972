"""Groups input lines as they arrive: lines that came together are sent together, without waiting for more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, Protocol, cast

import click

from semel.cli.streams.source import LARGEST_BYTES

CHUNK_BYTES = 256 * 1024


class _Arriving(Protocol):
    def read1(self, size: int, /) -> bytes:
        """Read the available bytes, waiting only when there are none; empty at the end."""


def arriving_lines(source: BinaryIO) -> Iterator[list[bytes]]:
    """All lines of an input, each with its end."""
    arriving = cast(_Arriving, source)
    begun: list[bytes] = []
    while chunk := arriving.read1(CHUNK_BYTES):
        begun.append(chunk)
        if b"\n" in chunk:
            *lines, rest = b"".join(begun).split(b"\n")
            begun = [rest]
            yield [line + b"\n" for line in lines]
        elif sum(map(len, begun)) > LARGEST_BYTES:
            raise click.ClickException(f"A line is larger than {LARGEST_BYTES // 1024**2} MiB; split it.")
    last = b"".join(begun)
    if last:
        yield [last]
