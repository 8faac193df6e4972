"""The output of an export: a file or a folder that is complete or does not exist.

A file is written under a temporary name and renamed when it is complete. An export that ends early (a full disk,
Control-C, a refusal) does not change the target. A killed process leaves a file or folder whose name starts with a dot
and ends in `.part`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from semel.surfaces.deltas.flat_files import ExportError


def refuse_taken(path: Path, *, is_folder: bool, force: bool) -> None:
    """Refuse an unusable path, before anything is read and again before the rename."""
    if path.exists() and not force:
        raise ExportError(f"{path} already exists: give another name, or --force to replace it.")
    if path.exists() and path.is_dir() != is_folder:
        what = "a folder" if path.is_dir() else "a file"
        raise ExportError(f"{path} is {what}: give another name.")
    if not path.absolute().parent.is_dir():
        raise ExportError(f"There is no folder {path.parent} for {path.name}: create it first.")


@contextmanager
def new_file(path: Path, *, force: bool = False) -> Iterator[BinaryIO]:
    """A file that gets its name when the block succeeds, and is deleted when it fails."""
    beside = _beside(path)
    with _told(path):
        try:
            with beside.open("xb") as out:
                yield out
                out.flush()
                os.fsync(out.fileno())
            refuse_taken(path, is_folder=False, force=force)
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)


@contextmanager
def new_folder(path: Path, *, force: bool = False) -> Iterator[Path]:
    """A temporary folder whose files move to their target when the block succeeds.

    In an existing folder they replace files of the same names, one by one; other files stay.
    """
    beside = _beside(path)
    with _told(path):
        try:
            beside.mkdir()
            yield beside
            refuse_taken(path, is_folder=True, force=force)
            if path.exists():
                for file in sorted(beside.iterdir()):
                    file.replace(path / file.name)
            else:
                beside.rename(path)
        finally:
            shutil.rmtree(beside, ignore_errors=True)


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.part")


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise ExportError(f"{path} cannot be written: {error.strerror or error}.") from error
