"""A disk that loses power: a file system for SQLite that records each operation, and the bytes that a cut may leave.

What the file system promises here is the least that POSIX and SQLite's own file system give:

- A write changes only the bytes that it names. What is not synced may be kept or lost in any combination: whole writes,
  4 KiB pages or 512-byte sectors of them, later ones without earlier ones, a change of the file's length without the
  bytes (they read as zeros), the bytes without the change of length.
- A sync keeps every operation on that file that had ended when the sync began. It says nothing about other files.
- A directory entry, new or deleted, is kept or lost until the directory is synced. SQLite syncs the directory at the
  first sync of a log or journal that it opened to write, and at a deletion that asks for it; nothing else does.
- A sector is written whole or not at all.

The shared memory of the log is not a file of the disk: no cut leaves it.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import apsw

SECTOR = 512
PAGE = 4_096
_SYNCS_DIRECTORY = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL
_RECORDED = _SYNCS_DIRECTORY | apsw.SQLITE_OPEN_MAIN_DB


class DiskWrite(NamedTuple):
    """Bytes at an offset."""

    file: str
    offset: int
    data: bytes


class DiskTruncate(NamedTuple):
    """A file is cut to a length."""

    file: str
    size: int


class DiskSync(NamedTuple):
    """A sync has ended: it keeps the operations on its file before number `began`."""

    file: str
    began: int
    with_directory: bool


class DiskCreate(NamedTuple):
    """A new, empty file."""

    file: str


class DiskDelete(NamedTuple):
    """A file is gone."""

    file: str
    with_directory: bool


Operation = DiskWrite | DiskTruncate | DiskSync | DiskCreate | DiskDelete


class RecordingVfs(apsw.VFS):
    """The default file system under a name, with a record of what it was asked; for the files of one folder."""

    def __init__(self, name: str, lies: str = "") -> None:
        """A sync of a file whose name has this end returns without having kept anything."""
        self.name = name
        self.lies = lies
        self.operations: list[Operation] = []
        self.known: set[str] = set()
        """The files that exist."""
        self.guard = threading.Lock()
        super().__init__(name, "")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.unregister()

    @property
    def now(self) -> int:
        """The number of the next operation."""
        return len(self.operations)

    def note(self, operation: Operation) -> None:
        """Record an operation that has ended."""
        with self.guard:
            self.operations.append(operation)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - SQLite's name
        """Files of the database are recorded; temporary ones are not."""
        if not flags[0] & _RECORDED:
            return apsw.VFSFile("", name, flags)
        return _RecordedFile(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802 - SQLite's name
        """A deletion is recorded."""
        super().xDelete(filename, syncdir)
        name = Path(filename).name
        self.known.discard(name)
        self.note(DiskDelete(name, syncdir))


class _RecordedFile(apsw.VFSFile):
    def __init__(self, vfs: RecordingVfs, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._vfs = vfs
        self._file = Path(name.filename() if isinstance(name, apsw.URIFilename) else name or "").name
        self._owes_directory = bool(flags[0] & _SYNCS_DIRECTORY and flags[0] & apsw.SQLITE_OPEN_CREATE)
        super().__init__("", name, flags)
        if self._file not in vfs.known:
            vfs.known.add(self._file)
            vfs.note(DiskCreate(self._file))

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name
        super().xWrite(data, offset)
        self._vfs.note(DiskWrite(self._file, offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 - SQLite's name
        super().xTruncate(newsize)
        self._vfs.note(DiskTruncate(self._file, newsize))

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        began = self._vfs.now
        if not (
            self._vfs.lies and self._file.endswith(self._vfs.lies)
        ):  # the real sync is left out: the machine of the test keeps its power
            self._vfs.note(DiskSync(self._file, began, self._owes_directory))
            self._owes_directory = False


@dataclass
class _Inode:
    """A file without a name: what is surely on the disk, and the numbered operations that may be."""

    kept: bytearray = field(default_factory=bytearray)
    loose: list[tuple[int, DiskWrite | DiskTruncate]] = field(default_factory=list)

    def sync(self, began: int) -> None:
        """Keep what ended before."""
        for number, operation in self.loose:
            if number < began:
                _apply(self.kept, operation)
        self.loose = [one for one in self.loose if one[0] >= began]

    def left(self, chance: random.Random) -> bytes:
        """The content after a cut."""
        left = bytearray(self.kept)
        for operation in _survivors([one for _, one in self.loose], chance):
            _apply(left, operation)
        return bytes(left)


def _apply(content: bytearray, operation: DiskWrite | DiskTruncate) -> None:
    if isinstance(operation, DiskTruncate):
        del content[operation.size :]
        content.extend(bytes(operation.size - len(content)))
        return
    end = operation.offset + len(operation.data)
    content.extend(bytes(max(0, end - len(content))))
    content[operation.offset : end] = operation.data


def _parts(operation: DiskWrite, size: int) -> Iterable[DiskWrite]:
    """A write in parts that end at multiples of a size."""
    at = 0
    while at < len(operation.data):
        end = at + size - (operation.offset + at) % size
        yield DiskWrite(operation.file, operation.offset + at, operation.data[at:end])
        at = end


def _survivors(loose: list[DiskWrite | DiskTruncate], chance: random.Random) -> Iterable[DiskWrite | DiskTruncate]:
    """Some of the operations that were not synced, or parts of them, in the order of their beginning.

    In any order they would leave the same: for each sector any of its versions can be the last one that survives.
    """
    how = chance.choice(("none", "all", "first", "last", "some", "pages", "sectors"))
    share = chance.choice((0.1, 0.5, 0.9))
    bound = chance.randrange(len(loose) + 1)
    for number, operation in enumerate(loose):
        is_bound = number == bound
        if how == "all" or (how == "first" and number < bound) or (how == "last" and number > bound):
            yield operation
        elif how == "some" or (isinstance(operation, DiskTruncate) and how in ("pages", "sectors")):
            if chance.random() < share:
                yield operation
        elif isinstance(operation, DiskWrite) and (how in ("pages", "sectors") or (is_bound and how != "none")):
            for part in _parts(operation, PAGE if how == "pages" else SECTOR):
                if chance.random() < share:
                    yield part


def after_cut(before: Mapping[str, bytes], operations: Iterable[Operation], chance: random.Random) -> dict[str, bytes]:
    """The files that a cut after these operations leaves; `before` are the files that were on the disk at first."""
    seen = {name: _Inode(bytearray(content)) for name, content in before.items()}
    kept = dict(seen)
    for number, operation in enumerate(operations):
        if isinstance(operation, DiskCreate):
            seen[operation.file] = _Inode()
        elif isinstance(operation, DiskDelete):
            seen.pop(operation.file, None)
        elif isinstance(operation, DiskSync):
            seen[operation.file].sync(operation.began)
        else:
            seen[operation.file].loose.append((number, operation))
        if isinstance(operation, DiskSync | DiskDelete) and operation.with_directory:
            kept = dict(seen)
    entries = {name: chance.choice((seen, kept)).get(name) for name in sorted({*seen, *kept})}
    return {name: inode.left(chance) for name, inode in entries.items() if inode is not None}
