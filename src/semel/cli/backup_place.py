"""Where a backup is: a file, a folder of dated files, or a pipe.

A file is there whole or not at all. Old backups of a folder are deleted only after the new one is complete, and only
those whose names this command gives. What reads a pipe gets the bytes as they are made: it finds the end of the backup
missing if the command was killed.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, NamedTuple, Self

from semel.cli.output import printable
from semel.store.new_file import NewFile
from semel.store.protocol import StoreError

PIPE = "-"
"""Standard output of a backup, standard input of what reads one."""
DATED = re.compile(r"semel-\d{8}T\d{6}Z\.backup")
"""The names of backups in a folder. Their order is that of their times."""


class OpenBackup(NamedTuple):
    """An open backup; a pipe has no size and can be read once."""

    source: BinaryIO
    size: int | None


class OutputPipe:
    """Standard output, in place of a `NewFile`."""

    def __enter__(self) -> Self:
        self.refuse_existing()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing can be taken back."""

    def refuse_existing(self) -> None:
        """Raise if it is a terminal."""
        if sys.stdout.isatty():
            raise StoreError("A backup is not text for a terminal: name a file, or pipe it into another program.")

    def write(self, data: bytes) -> None:
        """Write all of these bytes."""
        try:
            sys.stdout.buffer.write(data)
        except OSError as error:
            raise self._failed(error) from error

    def publish(self) -> None:
        """Pass on what is still in the buffer."""
        try:
            sys.stdout.buffer.flush()
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> StoreError:
        # What is left in the buffer cannot be written; the interpreter would report that at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return StoreError(f"Standard output cannot be written, so the backup is not complete: {error.strerror}.")


class BackupPlace(NamedTuple):
    """The place of a new backup."""

    name: str
    target: NewFile | OutputPipe
    folder: Path | None = None
    """The folder that the backup gets a dated name in."""

    def delete_old(self, keep: int) -> list[str]:
        """Delete all dated backups of the folder but this one and the newest others, `keep` in all; their names."""
        assert self.folder is not None
        own = Path(self.name).name
        others = sorted(path.name for path in self.folder.iterdir() if DATED.fullmatch(path.name) and path.name != own)
        old = others[: max(0, len(others) - keep + 1)]
        for name in old:
            (self.folder / name).unlink(missing_ok=True)
        return old


def new_place(file: str, *, overwrite: bool, ending: str = "backup") -> BackupPlace:
    """The place of a new backup; in a folder it gets a name with the time. Raises `StoreError`."""
    if file == PIPE:
        return BackupPlace("standard output", OutputPipe())
    path = Path(file)
    if path.is_dir():
        named = path / f"semel-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.{ending}"
        return BackupPlace(str(named), NewFile(named, overwrite=overwrite), path)
    if file.endswith(("/", os.sep)):
        raise StoreError(f"The folder {printable(file)} does not exist: create it first.")
    return BackupPlace(str(path), NewFile(path, overwrite=overwrite))


@contextmanager
def opened_place(file: str) -> Iterator[OpenBackup]:
    """Open an existing backup. Raises `StoreError`."""
    if file == PIPE:
        yield OpenBackup(sys.stdin.buffer, None)
        return
    try:
        with Path(file).open("rb") as source:
            yield OpenBackup(source, _size_of(source))
    except OSError as error:
        raise StoreError(f"The file {printable(file)} cannot be read: {error.strerror}.") from error


def _size_of(source: BinaryIO) -> int | None:
    found = os.fstat(source.fileno())
    return found.st_size if stat.S_ISREG(found.st_mode) else None
