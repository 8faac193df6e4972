"""Arguments of the deltas commands: names of gateways and tables, and standard output that tells its end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, BinaryIO

from semel.cli.command import ParsedType, Positional
from semel.cli.output import content_out
from semel.surfaces.deltas.limits import MAX_GATEWAY_CHARACTERS

_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


def _gateway(name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError("a gateway's name must be UTF-8.") from None
    if not 1 <= len(name) <= MAX_GATEWAY_CHARACTERS:
        raise ValueError(f"a gateway's name must have 1 to {MAX_GATEWAY_CHARACTERS} characters.")
    return name


def _table(name: str) -> str:
    if not _TABLE.fullmatch(name):
        raise ValueError(
            "a table's name must have 1 to 64 letters, digits and underscores, and not start with a digit."
        )
    return name


Gateway = Annotated[str, Positional(type=ParsedType("gateway", _gateway))]
TABLE = ParsedType("table", _table)


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
