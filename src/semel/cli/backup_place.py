"""Where a backup is: a file, a folder of dated files, standard input, or the same in S3-compatible storage.

A target is there whole or not at all. Old backups of a folder are deleted only after the new one is complete, and only
those whose names this command gives.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, BinaryIO, NamedTuple, Protocol, Self

from semel.cli.command import Opt
from semel.cli.output import printable
from semel.store.new_file import NewFile
from semel.store.protocol import StoreError

STDIN = "-"
S3 = "s3://"
DATED = re.compile(r"semel-\d{8}T\d{6}Z\.backup")
"""The names of backups in a folder. Their order is that of their times."""

Endpoint = Annotated[
    str | None, Opt("Address of an S3-compatible service; else that of AWS_ENDPOINT_URL, or Amazon's.", "", "URL")
]


class BackupTarget(Protocol):
    """A new file or object: `publish` gives it its name."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    def refuse_existing(self) -> None:
        """Raise if the name is taken and may not be overwritten."""

    def write(self, data: bytes, /) -> Any:
        """Write all of these bytes."""

    def publish(self) -> None:
        """Make it visible under its name."""


class BackupSource(Protocol):
    """A backup that is read from its beginning to its end."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, at most this number; none at the end."""

    def seek(self, offset: int, /) -> int:
        """Go to a byte; not of a pipe."""


class OpenBackup(NamedTuple):
    """An open backup; a pipe has no size and can be read once."""

    source: BackupSource
    size: int | None


class BackupPlace(NamedTuple):
    """The place of a new backup."""

    name: str
    target: BackupTarget
    folder: str | None
    """The folder that the backup gets a dated name in, with a slash at its end."""
    endpoint: str | None

    def delete_old(self, keep: int) -> list[str]:
        """Delete all dated backups of the folder but the newest `keep`; returns their names."""
        assert self.folder is not None
        if not self.folder.startswith(S3):
            folder = Path(self.folder)
            old = _old((path.name for path in folder.iterdir()), keep)
            for name in old:
                (folder / name).unlink(missing_ok=True)
            return old
        from semel.store import object_storage  # noqa: PLC0415 - an extra

        place = object_storage.place_of_object(self.folder, self.endpoint)
        old = _old(object_storage.names_in(place), keep)
        for name in old:
            object_storage.delete_object(place.within(name))
        return old


def new_place(file: str, endpoint: str | None, *, overwrite: bool) -> BackupPlace:
    """The place of a new backup; in a folder it gets a name with the time. Raises `StoreError`."""
    dated = f"semel-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.backup"
    if file.startswith(S3):
        from semel.store import object_storage  # noqa: PLC0415 - an extra

        place = object_storage.place_of_object(file, endpoint)
        is_folder = not place.key or place.key.endswith("/")
        folder = file if file.endswith("/") else f"{file}/"
        place = place.within(dated) if is_folder else place
        target = object_storage.NewObject(place, overwrite=overwrite)
        return BackupPlace(place.shown, target, folder if is_folder else None, endpoint)
    path = Path(file)
    if path.is_dir():
        path /= dated
        return BackupPlace(str(path), NewFile(path, overwrite=overwrite), f"{path.parent}/", endpoint)
    if file.endswith(("/", os.sep)):
        raise StoreError(f"The folder {printable(file)} does not exist: create it first.")
    return BackupPlace(str(path), NewFile(path, overwrite=overwrite), None, endpoint)


@contextmanager
def opened_place(file: str, endpoint: str | None) -> Iterator[OpenBackup]:
    """Open an existing backup. Raises `StoreError`."""
    if file == STDIN:
        yield OpenBackup(sys.stdin.buffer, None)
        return
    if file.startswith(S3):
        from semel.store import object_storage  # noqa: PLC0415 - an extra

        found = object_storage.StoredObject(object_storage.place_of_object(file, endpoint))
        yield OpenBackup(found, found.size)
        return
    try:
        with Path(file).open("rb") as source:
            yield OpenBackup(source, _size_of(source))
    except OSError as error:
        raise StoreError(f"The file {printable(file)} cannot be read: {error.strerror}.") from error


def _size_of(source: BinaryIO) -> int | None:
    found = os.fstat(source.fileno())
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _old(names: Iterable[str], keep: int) -> list[str]:
    return sorted(name for name in names if DATED.fullmatch(name))[:-keep]
