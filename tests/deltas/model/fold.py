"""The state of a row, made from scratch: all its deltas in the order of their stamps, each applied to the one before.

Nothing here is kept between two questions, and nothing is clever. Whatever the server remembers about a row must come
to the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

from semel.surfaces.deltas.model import Delta, DeltaOp

Stamp = tuple[int, bytes, str]


class Folded(NamedTuple):
    """What a set of deltas makes of their row."""

    values: dict[str, str] | None
    """Text of each column that is there; None when the row is not."""
    writers: dict[str, Stamp]
    """Who wrote each column that is there."""
    known: frozenset[str]
    """Every column that was ever written."""
    tombstone: Stamp | None
    """The latest delete."""

    @property
    def is_live(self) -> bool:
        """Whether there is such a row."""
        return self.values is not None

    @property
    def columns(self) -> dict[str, str]:
        """What it holds; nothing when there is no row."""
        return self.values or {}


def stamp_of(delta: Delta) -> Stamp:
    """What decides: time, then author by UTF-16 code units, then id as text."""
    author: str = json.loads(delta.client)
    return delta.hlc, author.encode("utf-16-be", "surrogatepass"), delta.id.hex()


def fold(deltas: Iterable[Delta]) -> Folded:
    """The state of one row."""
    values: dict[str, str] | None = None
    writers: dict[str, Stamp] = {}
    known: set[str] = set()
    tombstone: Stamp | None = None
    for delta in sorted(deltas, key=stamp_of):
        stamp = stamp_of(delta)
        if delta.op is DeltaOp.DELETE:
            values, writers, tombstone = None, {}, stamp
            continue
        values = {} if values is None else values
        for column in delta.columns:
            values[column.name] = column.value
            writers[column.name] = stamp
            known.add(column.name)
    return Folded(values, writers, frozenset(known), tombstone)
