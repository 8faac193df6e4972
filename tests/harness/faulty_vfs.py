"""A file system for SQLite that fails on demand and counts what it is asked to do.

    with FaultyVfs("faulty") as vfs:
        store = open_store("sqlite:FOLDER?vfs=faulty", ...)
        vfs.fail_sync = True

Faults last until they are switched off. A failed sync is an I/O error, a failed write a full disk, a failed read an I/O
error. Only the database and its log are touched; the operating system's lock file beside them is not.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import apsw


class Operation(NamedTuple):
    """Something that SQLite asked of a file."""

    what: str
    file: str
    offset: int = 0


class FaultyVfs(apsw.VFS):
    """A named file system over the default one; the name is free again after the `with` block."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.fail_sync = False
        self.fail_write = False
        self.fail_read = False
        self.count_syncs = 0
        self.count_writes = 0
        self.operations: list[Operation] = []
        """Writes and syncs in order; a test may empty it."""
        super().__init__(name, "")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.mend()
        self.unregister()

    def mend(self) -> None:
        """No more faults."""
        self.fail_sync = self.fail_write = self.fail_read = False

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - SQLite's name
        """Every file is one of ours."""
        return _FaultyFile(self, name, flags)


class _FaultyFile(apsw.VFSFile):
    def __init__(self, vfs: FaultyVfs, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self._faults = vfs
        self._file = Path(name.filename() if isinstance(name, apsw.URIFilename) else name or "").name

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        self._faults.count_syncs += 1
        self._faults.operations.append(Operation("sync", self._file))
        if self._faults.fail_sync:
            raise apsw.IOError("the disk does not answer")
        super().xSync(flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name
        self._faults.count_writes += 1
        self._faults.operations.append(Operation("write", self._file, offset))
        if self._faults.fail_write:
            raise apsw.FullError("the disk is full")
        super().xWrite(data, offset)

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802 - SQLite's name
        if self._faults.fail_read:
            raise apsw.IOError("the disk cannot be read")
        return super().xRead(amount, offset)
