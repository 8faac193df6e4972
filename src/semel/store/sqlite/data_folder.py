"""The data folder: created durably, and locked against a second server.

The lock of a folder is one of a file that is open, not of a name. Whoever removes `semel.lock`, or puts another file in
the place of `semel.db`, makes room for a second server beside the first. So the first one looks before each transaction
whether both names still lead to the files that it has open. It looks at the names alone: a descriptor of `semel.db`
that is opened beside SQLite's drops all locks of the process on the file when it is closed.

On a full disk a server starts, reads and replays, and takes no new writes. SQLite needs some room even to read: the
index of its log is a file. A reserve is kept for that, and given up when a start finds no room.
"""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import suppress
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


FULL_BYTES = 16 * 1024 * 1024
"""A disk with fewer free bytes is full: no new write begins there, because a commit without room stops the server."""
RESERVE_BYTES = 256 * 1024
RESERVE_NAME = "semel.reserve"


class FolderDisk:
    """The room on the disk of a data folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._reserve = folder / RESERVE_NAME

    def flaw(self) -> str:
        """Why no write is taken; empty if the disk has room, or cannot be looked at."""
        free = _free_bytes(self._folder)
        if free is None or free >= FULL_BYTES:
            return ""
        return f"The disk of the database has {free:,} bytes free, and writes go on when it has {FULL_BYTES:,}."

    def keep_reserve(self) -> None:
        """Make the reserve if it is not there, as large as there is room for."""
        if _size_of(self._reserve) < RESERVE_BYTES:
            with suppress(OSError):
                self._reserve.write_bytes(bytes(RESERVE_BYTES))

    def give_up_reserve(self) -> bool:
        """Make room; whether there was a reserve."""
        try:
            self._reserve.unlink()
        except OSError:
            return False
        return True


class OpenFile:
    """The file that a name leads to now, and that this process keeps open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        found = path.stat()
        self._identity = found.st_ino, found.st_dev

    def is_in_place(self) -> bool:
        """Whether the name still leads to it."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise StoreError(f"{self._path} cannot be looked at: {error.strerror}.") from error
        return (found.st_ino, found.st_dev) == self._identity


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
        with suppress(OSError):  # a full disk: the number is for people, and the lock holds without it
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


def create_database(path: Path) -> None:
    """Create an empty database, which its user alone can read; the log beside it gets the same mode.

    One that exists is not opened.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def bytes_used(database: Path) -> tuple[int, int, int | None]:
    """The bytes of a database file, of the log beside it, and those that are free on its disk; None if unknown."""
    log = database.with_name(database.name + "-wal")
    return _size_of(database), _size_of(log), _free_bytes(database.parent)


def _free_bytes(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def _size_of(path: Path) -> int:
    """The size of a file; 0 if there is none: the log is made by the first commit."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
