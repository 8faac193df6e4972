"""A lock of a file against other processes, and against a second use in this one.

The lock is on a second file next to it, which stays. The operating system releases the lock when the process ends, so a
crash leaves nothing to clean up.
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
else:
    import fcntl

    def _take(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


class ProcessLock:
    """Held from construction to `release`."""

    def __init__(self, path: Path) -> None:
        second = path.with_name(path.name + ".lock")
        try:
            self._handle = os.open(second, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise LocalFileError(f"{second} cannot be written: {error.strerror}.") from None
        try:
            _take(self._handle)
        except OSError:
            os.close(self._handle)
            raise FileInUseError(f"{path} is in use: close its other user, or use another file.") from None

    def release(self) -> None:
        """Release the lock."""
        os.close(self._handle)
