"""Writes proof files."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from semel.cli.ledger.asking import Facts
from semel.cli.ledger.places import Scope
from semel.cli.output import printable
from semel.cli.streams.source import STDIN
from semel.client.proofs import ProofError, Trusted, anchor_of

T = TypeVar("T")


class ProofFileType(click.ParamType[Path]):
    """An option that names an output file; an unusable path is refused before any request is sent."""

    name = "file"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The path, or a usage error."""
        path = Path(str(value))
        if str(value) != STDIN and (path.is_dir() or not os.access(path.parent, os.W_OK)):
            self.fail(f"{path} cannot be written.", param, ctx)
        return path


def checked(document: Facts, place: Scope, check: Callable[[Trusted], T]) -> tuple[Trusted, T]:
    """Verify a proof of a place: returns the block that must be trusted, and what the proof shows."""
    try:
        anchor = anchor_of(document)
        return anchor, check(Trusted(anchor.height, anchor.hash, *place.numbers))
    except ProofError as error:
        raise click.ClickException(printable(f"What the server sent does not check: {error}")) from None


def save(path: Path, facts: Facts) -> None:
    """The document as JSON, whole or not at all; `-` is standard output."""
    content = json.dumps(facts, indent=1).encode() + b"\n"
    if str(path) == STDIN:
        sys.stdout.buffer.write(content)
        return
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(content)
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise click.ClickException(f"{path} cannot be written: {error.strerror}.") from None
