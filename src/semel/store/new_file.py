"""A file that is there whole or not at all, readable by its owner alone.

It is written under another name in the same folder, synced, and then given its name. A crash before that leaves a file
whose name begins with a dot and ends with `.part`, which can be deleted; under the final name there is nothing, or the
file that was there before.
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from semel.store.protocol import StoreError

BUFFER_BYTES = 1024 * 1024


class NewFile:
    """A context manager: `publish` gives the file its name; leaving the block without it removes what was written."""

    def __init__(self, path: Path, *, overwrite: bool) -> None:
        self._path = path
        self._overwrite = overwrite
        self._part = Path()

    def __enter__(self) -> Self:
        self.refuse_existing()
        try:
            handle, part = tempfile.mkstemp(".part", f".{self._path.name}.", self._path.parent)
        except OSError as error:
            raise self._failed(error) from error
        self._part = Path(part)
        self._file = os.fdopen(handle, "wb", BUFFER_BYTES)
        return self

    def refuse_existing(self) -> None:
        """Raise if the name is taken and may not be overwritten."""
        if self._path.is_dir():
            raise StoreError(f"{self._path} is a folder: name a file.")
        if self._path.exists() and not self._overwrite:
            raise StoreError(f"The file {self._path} exists: name another one, or give --force to overwrite it.")

    def write(self, data: bytes) -> None:
        """Write all of these bytes."""
        try:
            self._file.write(data)
        except OSError as error:
            raise self._failed(error) from error

    def publish(self) -> None:
        """Sync the content, give the file its name, and sync the folder."""
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            if not self._overwrite:
                self._link()
            self._part.replace(self._path)  # does nothing if both names are those of this file already
            _sync_folder(self._path.parent)
        except OSError as error:
            raise self._failed(error) from error

    def _link(self) -> None:
        """Take the name only if it is still free. On a file system without hard links the first look has to do."""
        try:
            os.link(self._part, self._path)
        except FileExistsError:
            self.refuse_existing()
            raise
        except OSError:
            return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):  # what is still in its buffer may not fit on a full disk
            self._file.close()
        self._part.unlink(missing_ok=True)

    def _failed(self, error: OSError) -> StoreError:
        return StoreError(f"The file {self._path} cannot be written: {error.strerror or error}.")


def _sync_folder(folder: Path) -> None:
    if sys.platform == "win32":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
