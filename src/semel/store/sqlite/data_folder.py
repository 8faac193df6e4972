"""The data folder: created durably, and locked against a second server."""

from __future__ import annotations

import os
import shutil
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
        """Release the lock."""
        os.close(self._handle)


def make_folder(folder: Path) -> None:
    """Create the folder durably: SQLite syncs its content, but not the entry of the folder in its parent."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    try:
        folder.mkdir(exist_ok=True)
    except FileExistsError as error:
        raise StoreError(f"{folder} is a file: name a folder for the data.") from error
    except OSError as error:
        raise StoreError(f"The data folder {folder} cannot be created: {error.strerror}.") from error
    if sys.platform != "win32":
        handle = os.open(folder.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def bytes_used(database: Path) -> tuple[int, int, int | None]:
    """The bytes of a database file, of the log beside it, and those that are free on its disk; None if unknown."""
    try:
        free: int | None = shutil.disk_usage(database.parent).free
    except OSError:
        free = None
    return _size_of(database), _size_of(database.with_name(database.name + "-wal")), free


def _size_of(path: Path) -> int:
    """The size of a file; 0 if there is none: the log is made by the first commit."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
