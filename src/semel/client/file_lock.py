"""A lock beside a file, so that two processes do not use the file at once. The end of a process releases it."""

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


class FileLock:
    """Held from construction to `release`."""

    def __init__(self, path: Path) -> None:
        beside = path.with_name(path.name + ".lock")
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

    def release(self) -> None:
        """Release the lock."""
        os.close(self._handle)
