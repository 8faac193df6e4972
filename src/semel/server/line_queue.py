"""The queue of audit log lines before they are written: limited, thread-safe; lines beyond the limit are counted.

Adding a line never waits for the disk. When the disk fails, what waits is written when it takes it again, with a line
behind it about what was lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from semel.server.line_file import LineFile

MAX_WAITING_BYTES = 4 * 1024 * 1024


class LineQueue:
    """The queue before one file. One thread writes, any thread adds."""

    def __init__(self, path: Path, loss: Callable[[int], bytes]) -> None:
        """`loss` makes the line about a number of lost ones."""
        self.lines = 0
        self.lost_lines = 0
        self._file = LineFile(path)
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
        """One more, if there is room."""
        with self._guard:
            if self._waiting_bytes + len(line) > MAX_WAITING_BYTES:
                self.lost_lines += 1
                self._untold += 1
            else:
                self._waiting.append(line)
                self._waiting_bytes += len(line)

    def write(self) -> None:
        """Everything that waits; after an OSError the rest of it waits on."""
        if self._file.is_behind:
            self._append(b"")
        lines = self._take()
        if lines:
            self._unfinished = len(lines)
            self._append(b"".join(lines))

    def close(self) -> None:
        """Give the file back."""
        self._file.close()

    def _append(self, lines: bytes) -> None:
        self._file.append(lines)
        self.lines += self._unfinished
        self._unfinished = 0

    def _take(self) -> list[bytes]:
        with self._guard:
            lines, self._waiting, self._waiting_bytes = self._waiting, [], 0
            untold, self._untold = self._untold, 0
        return [*lines, self._loss(untold)] if untold else lines
