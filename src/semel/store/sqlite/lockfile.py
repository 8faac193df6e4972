"""The lock file: keeps a second server out of a data folder.

The operating system holds the lock for as long as the process lives, however it ends, so a crash leaves nothing to
clean up. The process id inside the file is for people only.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from semel.store.protocol import StoreBusyError, StoreError

if sys.platform == "win32":
    import msvcrt

    def _take(handle: int) -> None:
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _take(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


class LockFile:
    """The lock of a data folder, held from construction to `release`."""

    def __init__(self, path: Path) -> None:
        try:
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StoreError(f"The data folder {path.parent} cannot be written to: {error.strerror}.") from error
        try:
            _take(self._handle)
        except OSError as error:
            holder = os.pread(self._handle, 20, 0).decode("ascii", "replace").strip() if sys.platform != "win32" else ""
            os.close(self._handle)
            who = f" (process {holder})" if holder else ""
            raise StoreBusyError(
                f"Another server{who} is using {path.parent}: stop it, or give this one a data folder of its own."
            ) from error
        os.ftruncate(self._handle, 0)
        os.write(self._handle, str(os.getpid()).encode())

    def release(self) -> None:
        """Let the next server in."""
        os.close(self._handle)
