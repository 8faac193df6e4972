"""Where the cursor of a follower is kept: with the application as a value, or in a file.

| kept | saved | after a crash |
|---|---|---|
| as a value | by the application | the application goes on from the cursor that it stored |
| `FileCursor` | when the next event is asked for, or by `ack` | the event in work is handed over again; at least once |
| `TransactionCursor` | by `ack`, in the application's transaction | exactly once: effect and cursor commit together |
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from semel.client.errors import InvalidArgumentError, LocalFileError
from semel.client.events.errors import CursorMovedError
from semel.client.events.values import START, Cursor
from semel.client.file_lock import FileLock
from semel.client.transport.network import Network


class CursorStore(ABC):
    """Keeps the cursor of one follower."""

    every = 0
    """After how many events a follower saves the cursor by itself, when the next one is asked for; 0 is never."""
    is_async = False
    """Whether it can be used only from asyncio code."""
    is_undoable = False
    """Whether a save is a part of the application's transaction, which may be rolled back."""

    @abstractmethod
    async def load(self, network: Network) -> Cursor:
        """The stored cursor."""

    @abstractmethod
    async def save(self, network: Network, before: Sequence[Cursor], cursor: Cursor, using: Any) -> None:
        """Replace the cursor that this follower loaded or saved last. Raises `CursorMovedError` for another one.

        `before` has that cursor, and then those of later saves that were interrupted, and may have been made.
        """

    def close(self) -> None:  # noqa: B027 - most have nothing to give back
        """Give back what `load` took."""


class ValueCursor(CursorStore):
    """The application keeps the cursor: each event has it."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor

    async def load(self, network: Network) -> Cursor:
        """The value that the application gave."""
        return self._cursor

    async def save(self, network: Network, before: Sequence[Cursor], cursor: Cursor, using: Any) -> None:
        """Nothing to do."""


class FileCursor(CursorStore):
    """A cursor in a file, for one process at a time: a lock beside the file refuses a second one.

    Promise: the file has one whole cursor at any time; one that was saved survives a crash and a power failure. It is
    saved when the application asks for the next event, so an event whose handling was interrupted is handed over again.
    A save waits for the disk: with `every=100` it is made after every 100 events, and a crash repeats up to 100. With
    `every=0` only `ack` saves. `start` is where a new file begins.
    """

    def __init__(self, path: str | os.PathLike[str], *, start: Cursor = START, every: int = 1) -> None:
        if every < 0:
            raise InvalidArgumentError("The number of events between two saves must not be negative.")
        self.path = Path(path)
        self._real = self.path.resolve()
        """Where it is, also behind a symbolic link and after a change of the working directory."""
        self.every = every
        self._start = start
        self._lock: FileLock | None = None
        self._guard = threading.Lock()
        """Held while the file is used: the caller of a save may have been cancelled, and the save goes on."""
        self._asked = self._saved = 0
        """The number of the last save that was asked for, and of the last one that was made."""

    async def load(self, network: Network) -> Cursor:
        """Lock and read the file. Raises `FileInUseError` if another process follows with it."""
        return await network.apart(self._load)

    async def save(self, network: Network, before: Sequence[Cursor], cursor: Cursor, using: Any) -> None:
        """Replace the file; it is on disk when this returns. If the caller is cancelled, it may be replaced later."""
        if using is not None:
            raise InvalidArgumentError("A cursor in a file is not saved in a transaction: call ack() without using.")
        self._asked += 1
        number = self._asked
        await network.apart(lambda: self._save(number, before, cursor))

    def close(self) -> None:
        """Release the lock, after a save that is being made."""
        with self._guard:
            if self._lock is not None:
                self._lock.release()
                self._lock = None

    def _load(self) -> Cursor:
        with self._guard:
            if self._lock is None or not self._lock.is_own:
                self._lock = FileLock(self._real)
            return self._read()

    def _read(self) -> Cursor:
        try:
            text = self._real.read_text(encoding="ascii")
            return Cursor.of_text(text.strip())
        except FileNotFoundError:
            return self._start
        except OSError as error:
            raise LocalFileError(f"{self.path} cannot be read: {error.strerror}.") from error
        except ValueError:
            raise LocalFileError(f"{self.path} is not the file of a cursor.") from None

    def _save(self, number: int, before: Sequence[Cursor], cursor: Cursor) -> None:
        with self._guard:
            if number < self._saved:
                return  # its caller was cancelled, and a later save was made
            if self._lock is not None:
                self._lock.check()
            if self._lock is None or self._read() not in before:
                raise CursorMovedError(f"{self.path} was changed, or its follower was closed. Follow again.")
            self._saved = number
            self._replace(cursor)

    def _replace(self, cursor: Cursor) -> None:
        beside = self._real.with_name(f"{self._real.name}.new")
        try:
            with open(beside, "w", encoding="ascii") as file:  # noqa: PTH123 - its descriptor is synced below
                file.write(f"{cursor.text()}\n")
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self._real)
            _sync_folder(self._real.parent)
        except OSError as error:
            raise LocalFileError(f"{self.path} cannot be written: {error.strerror}.") from error


def _sync_folder(folder: Path) -> None:
    """Bring a rename to disk, where the system can open folders."""
    with suppress(PermissionError, NotADirectoryError):  # Windows opens no folder, and orders renames itself
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
