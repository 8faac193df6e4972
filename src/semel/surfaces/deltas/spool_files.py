"""Spool files of checkpoints: their number, their size, and their folder.

A slow reader holds its file as long as it reads, so the number of files is limited in all and for each caller. No file
is written where that would leave too little free disk space, above all for the store. A file has no name, and is
removed with its answer or with the process.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Hashable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import IO

from semel.kernel.errors import Refused
from semel.server.memory_budget import Budget, BudgetShare
from semel.store.open import place_of

_log = logging.getLogger("semel.deltas")

MAX_AT_ONCE = 16
"""Limit of checkpoints that are written or sent at a time."""
MAX_EACH = 4
"""Limit of open files of one caller."""
SHARE_OF_ONE = MAX_AT_ONCE // MAX_EACH
"""One caller may hold at most 1/SHARE_OF_ONE of the bytes as well."""
FREE_BYTES = 512 * 1024 * 1024
"""Bytes that must stay free on the disk."""


def folder_for(store_url: str) -> Path | None:
    """The folder of spool files: beside an embedded database, on a disk with room for that data; else None.

    None is the system's folder for temporary files: a node on another store need not have a folder of its own.
    """
    kind, *rest = place_of(store_url)
    return Path(rest[0]) if kind == "sqlite" else None


def _free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


class SpoolFiles:
    """The spool files of this process and their limits; made once."""

    def __init__(self, folder: Path | None, most_bytes: int, free_bytes: Callable[[Path], int] = _free_bytes) -> None:
        self._folder = folder
        self._free_bytes = free_bytes
        self._places = Budget(MAX_AT_ONCE, MAX_EACH)
        self.bytes = Budget(most_bytes, most_bytes // SHARE_OF_ONE)

    def open(self, holder: Hashable) -> SpoolFile:
        """Open a file for a holder, which must close it."""
        place = self._places.share(holder)
        if not place.resize(1):
            raise _busy()
        try:
            folder = Path(gettempdir()) if self._folder is None else self._folder
            file = TemporaryFile(dir=folder)  # noqa: SIM115 - it is closed with the spool
        except OSError as error:
            place.close()
            raise _no_file(error) from None
        return SpoolFile(file, place, self.bytes.share(holder), lambda: self._free_bytes(folder))


class SpoolFile:
    """One spool file: written, read from its beginning, closed."""

    def __init__(self, file: IO[bytes], place: BudgetShare, room: BudgetShare, free_bytes: Callable[[], int]) -> None:
        self._file = file
        self._place = place
        self._room = room
        self._free_bytes = free_bytes

    @property
    def size(self) -> int:
        """Number of bytes that were written."""
        return self._room.size

    def restart(self) -> None:
        """Discard what was written."""
        self._file.seek(0)
        self._file.truncate()
        self._room.resize(0)

    def write(self, data: bytes) -> None:
        """Append data, if there is room for it."""
        size = self.size + len(data)
        if size > self._room.most:
            raise Refused("deltas:NOT_FOUND", "The gateway is too large for a checkpoint; pull from 0.")
        if not self._room.resize(size):
            raise _busy()
        try:
            if self._free_bytes() - len(data) < FREE_BYTES:
                raise _no_room()
            self._file.write(data)
            self._file.flush()  # report a full disk here
        except OSError as error:
            raise _no_file(error) from None

    def rewind(self) -> None:
        """Go to the start of the file for reading."""
        self._file.seek(0)

    def read(self, size: int) -> bytes:
        """The next bytes, at most `size`; empty at the end."""
        return self._file.read(size)

    def close(self) -> None:
        """Close the file and release its room; may be called more than once."""
        with suppress(OSError):  # unwritten data of a full disk is not needed
            self._file.close()
        self._room.close()
        self._place.close()


def _busy() -> Refused:
    return Refused("deltas:BACKPRESSURE_ERROR", "Too many checkpoints are under way; try again in a moment.")


def _no_room() -> Refused:
    _log.warning("a checkpoint was refused: the disk is nearly full")
    return _refused()


def _no_file(error: OSError) -> Refused:
    _log.error("a checkpoint could not be written", extra={"reason": error.strerror or str(error)})
    return _refused()


def _refused() -> Refused:
    return Refused(
        "deltas:BACKPRESSURE_ERROR", "There is no room to write a checkpoint; try again later, or pull from 0."
    )
