"""A lock of a file against other processes, and against a second use in this one.

The lock is on a second file next to it, which stays. The operating system releases the lock when the process ends, so a
crash leaves nothing to clean up. A forked process does not have the lock: its parent does.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from semel.client.errors import FileInUseError, LocalFileError

if sys.platform == "win32":
    import msvcrt

    def _take(handle: int) -> None:
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)

    def _give(handle: int) -> None:
        msvcrt.locking(handle, msvcrt.LK_UNLCK, 1)
else:
    import fcntl

    def _take(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _give(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_UN)


class FileLock:
    """Held from construction to `release`. A symbolic link is the file that it leads to."""

    def __init__(self, path: Path) -> None:
        real = path.resolve()
        beside = real.with_name(real.name + ".lock")
        self._path = path
        self._pid = os.getpid()
        try:
            self._handle = os.open(beside, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise LocalFileError(f"{beside} cannot be written: {error.strerror}.") from error
        try:
            _take(self._handle)
        except OSError as error:
            os.close(self._handle)
            raise FileInUseError(
                f"{path} is in use by another client: close that client, or use another file."
            ) from error

    @property
    def is_own(self) -> bool:
        """Whether this process took it, and not one that this process was forked from."""
        return self._pid == os.getpid()

    def check(self) -> None:
        """Raise `FileInUseError` in a forked process."""
        if not self.is_own:
            raise FileInUseError(
                f"{self._path} is in use by the process that this one was forked from: use another file, or fork first."
            )

    def release(self) -> None:
        """Release the lock; in a forked process the parent keeps it."""
        if self.is_own:
            _give(self._handle)  # a forked process may still have the handle open
        os.close(self._handle)
