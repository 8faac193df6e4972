"""A log file with rotation: appended at its end, and renamed when it has reached its size limit.

`NAME` takes the new lines; at `MAX_BYTES` it becomes `NAME.1`, that becomes `NAME.2`, and so on up to `NAME.5`, which
is then the oldest. Lines are appended with one write, so a concurrent reader sees whole lines; a write that the disk
took only in part is gone on with at the next try. They are not synced: a killed process loses nothing that was
written, a power cut may lose the last seconds. A process or machine that died in the middle of a write leaves a torn
last line, which the next one to open the file ends with a newline.

The file may be moved or removed under the writer: each append looks whether it is still the file of that name.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

MAX_BYTES = 10 * 1024 * 1024
KEPT = 5

_OPEN = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)


class LineFile:
    """Appends lines to a file; the file is created with the first line."""

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._handle: int | None = None
        self._rest = b""
        self._is_torn = False

    @property
    def is_behind(self) -> bool:
        """Whether lines of an append that failed are still to be written."""
        return bool(self._rest)

    def append(self, lines: bytes) -> None:
        """Append whole lines. After an OSError the rest of them is kept: append nothing to retry."""
        self._rest += lines
        handle = self._opened()
        if not self._is_torn and self._is_full(handle):
            self._move_aside()
            handle = self._opened()
        while self._rest:
            count = os.write(handle, self._rest)
            self._is_torn = self._rest[count - 1 : count] != b"\n"
            self._rest = self._rest[count:]

    def close(self) -> None:
        """Give the file back."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _is_full(self, handle: int) -> bool:
        size = os.fstat(handle).st_size
        return size > 0 and size + len(self._rest) > self._max_bytes

    def _opened(self) -> int:
        """The file of this name, reopened if it was replaced."""
        if self._handle is not None and not self._is_ours(self._handle):
            self.close()
        if self._handle is None:
            self._handle = self._open()
        return self._handle

    def _is_ours(self, handle: int) -> bool:
        try:
            return os.path.samestat(os.fstat(handle), self._path.stat())
        except FileNotFoundError:
            return False

    def _open(self) -> int:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(self._path, _OPEN, 0o600)
        try:
            self._begin_a_line(handle)
        except OSError:
            os.close(handle)
            raise
        return handle

    def _begin_a_line(self, handle: int) -> None:
        if self._is_torn:  # its beginning went with another file, which is no more under this name
            self._rest = self._rest.partition(b"\n")[2]
            self._is_torn = False
        size = os.fstat(handle).st_size
        if size > 0:
            os.lseek(handle, size - 1, os.SEEK_SET)
            if os.read(handle, 1) != b"\n":
                self._rest = b"\n" + self._rest

    def _move_aside(self) -> None:
        self.close()
        for number in range(KEPT, 1, -1):
            with suppress(FileNotFoundError):
                kept_name(self._path, number - 1).replace(kept_name(self._path, number))
        self._path.replace(kept_name(self._path, 1))


def kept_name(path: Path, number: int) -> Path:
    """The name of a file that was moved aside: 1 is the newest."""
    return path.with_name(f"{path.name}.{number}")
