"""Follows a log file across rotation: each line once and in order.

Nothing is kept open or locked between two looks, so the writer is not disturbed. A file is known by its place on the
disk and its first bytes, whatever its name has become. The names are gone through from the newest to the oldest, as
files move, so that none slips past a look that meets them moving.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, NamedTuple

from semel.server.line_file import KEPT, kept_name

PIECE_BYTES = 1024 * 1024
HEAD_BYTES = 40  # reaches over the time of the first line; no line of the log is shorter


class _Identity(NamedTuple):
    device: int
    inode: int
    head: bytes


class Following:
    """Continues where the last read ended."""

    def __init__(self, path: Path) -> None:
        self._names = [path, *(kept_name(path, number) for number in range(1, KEPT + 1))]
        self._read: dict[_Identity, int] = {}

    def new_lines(self) -> Iterator[bytes]:
        """Whole lines since the last read, without their ends; those of the oldest file first."""
        with ExitStack() as opened:
            files: dict[_Identity, BinaryIO] = {}
            for name in self._names:
                try:
                    file: BinaryIO = opened.enter_context(name.open("rb"))
                except FileNotFoundError:
                    continue
                head = file.read(HEAD_BYTES)
                if len(head) == HEAD_BYTES:
                    status = os.fstat(file.fileno())
                    files.setdefault(_Identity(status.st_dev, status.st_ino, head), file)
            self._read = {identity: self._read.get(identity, 0) for identity in files}
            for identity, file in reversed(files.items()):
                yield from self._rest(identity, file)

    def _rest(self, identity: _Identity, file: BinaryIO) -> Iterator[bytes]:
        size = os.fstat(file.fileno()).st_size  # what comes after this is for the next look
        file.seek(self._read[identity])
        while piece := file.read(min(PIECE_BYTES, max(0, size - self._read[identity]))):
            end = piece.rfind(b"\n") + 1
            if end == 0 and len(piece) < PIECE_BYTES:
                return  # the line is still being written
            self._read[identity] += end or len(piece)  # what is longer than any line is passed over
            file.seek(self._read[identity])
            yield from piece[:end].splitlines()
