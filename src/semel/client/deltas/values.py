"""Immutable result types of `DeltasClient`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from semel.client.deltas.rows import Op


@dataclass(frozen=True, slots=True)
class OwnDelta:
    """A change that this replica has made."""

    delta_id: str
    op: Op
    table: str
    row_id: str
    columns: Mapping[str, Any]
    hlc: int
    """Milliseconds since 1970 above sixteen bits of a counter."""


@dataclass(frozen=True, slots=True)
class PendingDelta(OwnDelta):
    """A change of this replica that the server has not acknowledged yet."""

    is_sent: bool
    """Whether it was sent without an answer, so that the server may have it already."""
    tries: int
    """How often it has been sent."""
    error: str | None
    """Why the last time was in vain."""


@dataclass(frozen=True, slots=True)
class DeadLetter(OwnDelta):
    """A change that the server has refused and would refuse again: set aside, not in the row, and not forgotten."""

    status: int
    code: str
    message: str
    """The server's message."""
    refused: datetime


@dataclass(frozen=True, slots=True)
class Change:
    """A row that a pull has changed."""

    table: str
    row_id: str
    before: Mapping[str, Any] | None
    """None when there was no such row."""
    after: Mapping[str, Any] | None
    """None when it was deleted."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """The result of a push."""

    accepted: int = 0
    """Changes that the server has on disk now, those that it had before too."""
    duplicates: int = 0
    """How many of them it had before: an answer of an earlier push was lost."""
    dead: tuple[DeadLetter, ...] = field(default=())
    """Changes that were refused for good and set aside."""


@dataclass(frozen=True, slots=True)
class Pulled:
    """The result of a pull."""

    entries: int = 0
    """Number of others' changes, and of rows of a checkpoint."""
    changed: int = 0
    """Number of changed rows; a row counts once for each page."""
    ahead_ms: int = 0
    """How far the latest change was ahead of this machine's clock, if that was too far to be believed; else 0."""

    def and_also(self, other: Pulled) -> Pulled:
        """Both together."""
        ahead = max(self.ahead_ms, other.ahead_ms)
        return Pulled(self.entries + other.entries, self.changed + other.changed, ahead)


@dataclass(frozen=True, slots=True)
class Synced:
    """A push and the pull after it."""

    pushed: Pushed
    pulled: Pulled
