"""Arguments of the deltas commands: names of gateways and tables, and the output file or folder.

A file is written under a temporary name and renamed when it is complete. An export that ends early (a full disk,
Control-C, a refusal) does not change the target. A killed process leaves a file or folder whose name starts with a dot
and ends in `.part`. For standard output, the command says whether the export was complete.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import click

from semel.cli.command import Positional
from semel.cli.output import content_out
from semel.surfaces.deltas.limits import MAX_GATEWAY_CHARACTERS

_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


class GatewayType(click.ParamType[str]):
    """An argument that names a gateway."""

    name = "gateway"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name, or a usage error."""
        name = str(value)
        try:
            name.encode()
        except UnicodeEncodeError:
            self.fail("a gateway's name must be UTF-8.", param, ctx)
        if not 1 <= len(name) <= MAX_GATEWAY_CHARACTERS:
            self.fail(f"a gateway's name must have 1 to {MAX_GATEWAY_CHARACTERS} characters.", param, ctx)
        return name


Gateway = Annotated[str, Positional(type=GatewayType())]


class TableType(click.ParamType[str]):
    """An argument that names a table."""

    name = "table"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name, or a usage error."""
        name = str(value)
        if not _TABLE.fullmatch(name):
            self.fail(
                "a table's name must have 1 to 64 letters, digits and underscores, and not start with a digit.",
                param,
                ctx,
            )
        return name


STDOUT = "-"


class CutShortError(Exception):
    """The reader closed standard output before the end."""


@contextmanager
def standard_output() -> Iterator[BinaryIO]:
    """Standard output for content. Raises `CutShortError` if it was closed early."""
    is_whole = False
    with content_out() as out:
        yield out
        out.flush()
        is_whole = True
    if not is_whole:
        raise CutShortError


def refuse_taken(path: Path, *, is_folder: bool, force: bool) -> None:
    """Refuse an unusable path, before anything is read and again before the rename."""
    if path.exists() and not force:
        raise click.ClickException(f"{path} already exists: give another name, or --force to replace it.")
    if path.exists() and path.is_dir() != is_folder:
        what = "a folder" if path.is_dir() else "a file"
        raise click.ClickException(f"{path} is {what}: give another name.")
    if not path.absolute().parent.is_dir():
        raise click.ClickException(f"There is no folder {path.parent} for {path.name}: create it first.")


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
        raise click.ClickException(f"{path} cannot be written: {error.strerror or error}.") from error
