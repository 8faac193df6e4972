"""The lock of a replica's file: keeps out a second process, and a second client of the same process.

The operating system holds the lock for as long as the process lives, however it ends, so a crash leaves nothing to
clean up. It is on a file beside the database, which others may go on reading.
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
                f"{path} is in use by another client: close that one, or give this one a file of its own."
            ) from error

    def release(self) -> None:
        """Let the next one in."""
        os.close(self._handle)
