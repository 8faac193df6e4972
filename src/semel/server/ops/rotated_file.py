"""A file of lines that is rotated by size, and the bounded queue in front of it.

`NAME` takes the new lines; at `MAX_BYTES` it becomes `NAME.1`, that becomes `NAME.2`, and so on up to `NAME.5`, the
oldest. Lines are appended with one write, so a reader sees whole lines; a partial write is continued at the next
attempt. Lines are synced only on request: a killed process loses nothing that was written, a power cut may lose the
lines since the last sync. A process or machine that died during a write leaves a torn last line, which the next process
that opens the file ends with a newline. The file may be moved or removed while it is in use: each append checks whether
it is still the file of that name, and a line that was cut short is written again, whole, to the new one.

Adding a line to the queue never waits for the disk; lines beyond its limit are lost and counted. When the disk fails,
waiting lines are written once it works again, followed by a line with the number of lost ones.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
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
        self._torn = b""
        """The beginning of a line that is in the file, and whose end is in the rest."""
        self._is_entry_synced = False

    @property
    def is_behind(self) -> bool:
        """Whether lines of a failed append are still to be written."""
        return bool(self._rest)

    def append(self, lines: bytes) -> None:
        """Append whole lines, to a new file if this one is full. After an OSError the rest of them is kept: append
        nothing to retry.
        """
        self._rest += lines
        if not self._torn and self._is_full():
            self._move_aside()
        handle = self._opened()
        while self._rest:
            count = os.write(handle, self._rest)
            written, self._rest = self._torn + self._rest[:count], self._rest[count:]
            self._torn = written[written.rfind(b"\n") + 1 :]

    def _is_full(self) -> bool:
        """Whether the file has lines, and no room for those that wait."""
        present = os.fstat(self._opened()).st_size
        return present > 0 and present + len(self._rest) > self._max_bytes

    def _move_aside(self) -> None:
        """Sync the file and rename it, so that the next line begins a new one; the oldest file is dropped."""
        os.fsync(self._opened())
        self.close()
        for number in range(KEPT, 1, -1):
            with suppress(FileNotFoundError):
                kept_name(self._path, number - 1).replace(kept_name(self._path, number))
        self._path.replace(kept_name(self._path, 1))

    def sync(self) -> None:
        """Sync what was written; does nothing before the first line."""
        if self._handle is None:
            return
        os.fsync(self._handle)
        if not self._is_entry_synced and sys.platform != "win32":
            folder = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        self._is_entry_synced = True

    def close(self) -> None:
        """Close the file."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

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
        self._is_entry_synced = False
        try:
            self._begin_a_line(handle)
        except OSError:
            os.close(handle)
            raise
        return handle

    def _begin_a_line(self, handle: int) -> None:
        self._rest, self._torn = self._torn + self._rest, b""  # its beginning is in a file that no longer has this name
        size = os.fstat(handle).st_size
        if size > 0:
            os.lseek(handle, size - 1, os.SEEK_SET)
            if os.read(handle, 1) != b"\n":
                self._rest = b"\n" + self._rest


def kept_name(path: Path, number: int) -> Path:
    """The name of a rotated file: 1 is the newest."""
    return path.with_name(f"{path.name}.{number}")


MAX_WAITING_BYTES = 4 * 1024 * 1024


class LineQueue:
    """The queue in front of one file. One thread writes, any thread adds."""

    def __init__(self, file: LineFile, loss: Callable[[int], bytes]) -> None:
        """`loss` makes the line about a number of lost lines."""
        self.lines = 0
        self.lost_lines = 0
        self._file = file
        self._loss = loss
        self._guard = threading.Lock()
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._untold = 0
        self._unfinished = 0

    @property
    def has_work(self) -> bool:
        """Whether there is anything to write."""
        return bool(self._waiting or self._file.is_behind)

    def add(self, line: bytes) -> None:
        """Add a line; it is lost if the queue is full."""
        with self._guard:
            if self._waiting_bytes + len(line) > MAX_WAITING_BYTES:
                self.lost_lines += 1
                self._untold += 1
            else:
                self._waiting.append(line)
                self._waiting_bytes += len(line)

    def write(self) -> None:
        """Write all waiting lines; after an OSError the rest stays in the queue."""
        if self._file.is_behind:
            self._append(())
        lines = self._take()
        if lines:
            self._unfinished = len(lines)
            self._append(lines)

    def sync(self) -> None:
        """Sync what was written."""
        self._file.sync()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _append(self, lines: Sequence[bytes]) -> None:
        self._file.append(b"".join(lines))
        self.lines += self._unfinished
        self._unfinished = 0

    def _take(self) -> list[bytes]:
        with self._guard:
            lines, self._waiting, self._waiting_bytes = self._waiting, [], 0
            untold, self._untold = self._untold, 0
        return [*lines, self._loss(untold)] if untold else lines
