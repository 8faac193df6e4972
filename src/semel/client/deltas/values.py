"""Immutable results of a replica's calls."""

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
    """Hybrid logical clock: 48 bits of milliseconds since 1970, then a 16-bit counter."""


@dataclass(frozen=True, slots=True)
class PendingDelta(OwnDelta):
    """A change of this replica that the server has not acknowledged yet."""

    is_sent: bool
    """Whether it was sent and not answered, so that the server may have it."""
    tries: int
    """Number of attempts to send it."""
    error: str | None
    """Why the last attempt failed."""


@dataclass(frozen=True, slots=True)
class DeadLetter(OwnDelta):
    """A change that the server has permanently refused. It is kept, but has no effect on the row."""

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
    """None if the row did not exist."""
    after: Mapping[str, Any] | None
    """None if it was deleted."""


@dataclass(frozen=True, slots=True)
class LostWrite:
    """An own write that a change of another replica has replaced: the last writer wins."""

    table: str
    row_id: str
    column: str | None
    """The column; None if an own deletion of the row lost."""
    own: Any
    """The value that this replica had written; None if it had cleared the column, or deleted the row."""
    winning: Any
    """The value now; None if the column is cleared or the row is deleted."""
    winner: str | None
    """The id of the replica that won; None if the server's rows were loaded whole, which does not tell it."""
    is_row_deleted: bool
    """Whether the row does not exist any more."""
    was_pending: bool
    """Whether the own write was not acknowledged yet, so that the other replica cannot have seen it."""


@dataclass(frozen=True, slots=True)
class RowChanges:
    """How the result of a watched query has changed; the first one has all matching rows in `added`."""

    added: Mapping[str, Mapping[str, Any]]
    """Rows that match now and did not before, by their ids."""
    changed: Mapping[str, Mapping[str, Any]]
    """Rows that match as before, with other columns."""
    removed: tuple[str, ...]
    """Ids of rows that do not match any more."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """The result of a push."""

    accepted: int = 0
    """Changes that the server has on disk, including those that it had before."""
    duplicates: int = 0
    """How many of them it had before, because the answer to an earlier push was lost."""
    dead: tuple[DeadLetter, ...] = field(default=())
    """Changes that were permanently refused."""


@dataclass(frozen=True, slots=True)
class Pulled:
    """The result of a pull."""

    entries: int = 0
    """Number of changes of other replicas, plus rows of a checkpoint."""
    changed: int = 0
    """Number of changed rows; a row counts once for each page."""
    ahead_ms: int = 0
    """Milliseconds by which the latest change was ahead of this machine's clock, if over the limit; else 0."""

    def and_also(self, other: Pulled) -> Pulled:
        """The sum of two results."""
        ahead = max(self.ahead_ms, other.ahead_ms)
        return Pulled(self.entries + other.entries, self.changed + other.changed, ahead)


@dataclass(frozen=True, slots=True)
class Synced:
    """A push and the pull after it."""

    pushed: Pushed
    pulled: Pulled
