"""Export files: written under a temporary name, and renamed when they are complete.

Whatever ends an export before that, a full disk, Control-C or a refusal, leaves what was there as it was. Only a killed
process leaves something behind: a file or folder whose name begins with a dot and ends in `.part`. Standard output is
the exception: what has gone there is gone, and whether it was all is told.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import click

from semel.cli.output import content_out

STDOUT = "-"


class CutShortError(Exception):
    """The reader of standard output has closed it before its end."""


@contextmanager
def standard_output() -> Iterator[BinaryIO]:
    """Standard output for content; raises `CutShortError` when not all of it could be written."""
    is_whole = False
    with content_out() as out:
        yield out
        out.flush()
        is_whole = True
    if not is_whole:
        raise CutShortError


def refuse_taken(path: Path, *, is_folder: bool, force: bool) -> None:
    """Refuse a name that cannot be used: before anything is read, and again before it is given."""
    if path.exists() and not force:
        raise click.ClickException(f"{path} is there already: name another, or say --force to replace it.")
    if path.exists() and path.is_dir() != is_folder:
        what = "a folder" if path.is_dir() else "a file"
        raise click.ClickException(f"{path} is {what}: name another.")
    if not path.absolute().parent.is_dir():
        raise click.ClickException(f"There is no folder {path.parent} to put {path.name} into.")


@contextmanager
def new_file(path: Path, *, force: bool = False) -> Iterator[BinaryIO]:
    """A file that has its name when the block ends well, and is gone when it does not."""
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
    """A folder to write files into; they have their places when the block ends well.

    Where the folder is there already they replace those of the same names, one after the other; others stay.
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
        raise click.ClickException(f"{path} cannot be written: {error.strerror or error}.") from error
