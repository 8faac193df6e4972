"""The commands of deltas, their answers, and refusals with the deltas that caused them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from semel.kernel.errors import Refusal
from semel.surfaces.deltas.model import Delta, DeltaCursor, DeltaEntry, DeltaReplica

MAX_FLAWS = 100
"""Limit of flaws that a refusal lists; the first ones are listed."""


class DeltaFlaw(NamedTuple):
    """One delta that cannot be accepted."""

    place: int
    """The index of the delta in the push."""
    delta_id: str
    """The id as sent; empty if none was sent."""
    code: str
    message: str
    status: int


def refusal_of(flaws: Sequence[DeltaFlaw]) -> Refusal:
    """The refusal of a push: its code is that of the first flaw, and it lists all flaws."""
    first = flaws[0]
    message, facts = f"deltas[{first.place}]: {first.message}", {"flaws": tuple(flaws[:MAX_FLAWS])}
    return Refusal(f"deltas:{first.code}", message, facts, own_status=first.status)


def flaws_of(refusal: Refusal) -> Sequence[DeltaFlaw]:
    """The flaws that a refusal lists; empty if it is not about single deltas."""
    flaws: Sequence[DeltaFlaw] = refusal.facts.get("flaws", ())
    return flaws


class PushDeltas(NamedTuple):
    """Commit these deltas, all or none."""

    replica: DeltaReplica
    deltas: tuple[Delta, ...]
    is_named: bool = True
    """Whether callers have names: then the replica of another author is found under the author's own name."""
    shown: int = 0
    """The position that a replica without a stored row has acknowledged; its first push stores the row."""
    is_plain: bool = False
    """Whether the client uses the plain dialect: its progress is not stored, and it needs no repair."""
    start: int = 0
    """The index of the first delta, in a push that is decided in parts."""
    has_begun: bool = False
    """Whether an earlier part has stored something."""
    goes_on: bool = False
    """Whether more parts follow: then this part assigns no cursor and leaves the progress of the replica unchanged."""


class InspectPush(NamedTuple):
    """Find the flaws that are known before any of these deltas is applied."""

    push: PushDeltas


class PushInspected(NamedTuple):
    """Flaws, grouped by the check that found them."""

    flaws: tuple[Sequence[DeltaFlaw], ...]
    server_hlc: int


class DeltasPushed(NamedTuple):
    """All deltas are on disk, including those that were known before."""

    server_hlc: int
    accepted: int
    duplicates: int
    entries: tuple[DeltaEntry, ...]
    first: int = 0
    """In the plain dialect, the position of the first new delta of the push; 0 if none was new."""
    known: tuple[bytes, ...] = ()
    """The ids of the deltas that were known before the push."""


class RecordDelivery(NamedTuple):
    """Record the progress of a replica before a page is sent to it."""

    replica: DeltaReplica
    cursor: int
    shown: int = 0
    """The position that the replica has acknowledged by its request."""
    rest: DeltaCursor | None = None
    """The meaning of the cursor, when it is an alias."""
    gone_back_at: int | None = None
    """The end of the log when the replica went back to an older cursor; None when it did not."""
    is_taken: bool = False
    """Whether the cursor, which is the end of the log, is in use as an alias, so that a new number is needed."""
    mark: tuple[int, int, bytes] = (0, 0, b"")
    """The replica's progress when the page was read. If it has changed since, the page must be read again."""


class AdvanceCursor(NamedTuple):
    """Move the cursor of a replica, for which a long stretch of the log holds no entries, to the end of the log."""

    replica: DeltaReplica
    since: int
    cursor: int
    mark: tuple[int, int, bytes]


class DeliveryRecorded(NamedTuple):
    """The progress is on disk. Without a cursor, the state has changed and the page must be read again."""

    cursor: int | None


class SaveTableSchema(NamedTuple):
    """Save the columns of a table: other columns are refused from now on."""

    gateway: str
    table: str
    columns: tuple[tuple[str, str], ...]
    """Name and type of each column."""


class SaveSyncRules(NamedTuple):
    """Save the sync rules of a gateway: canonical JSON."""

    gateway: str
    rules: bytes


class FlushGateway(NamedTuple):
    """Answer when all earlier writes are on disk."""

    gateway: str


class GatewaySaved(NamedTuple):
    """The change is on disk."""


class ForgetClients(NamedTuple):
    """Forget the progress of clients: keys of client and subject."""

    gateway: str
    clients: tuple[tuple[bytes, bytes], ...]
    before_ms: int | None = None
    """Forget only clients that have been inactive since this time; None forgets all of them."""


class ClientsForgotten(NamedTuple):
    """The number of forgotten clients."""

    clients: int


class TrimLog(NamedTuple):
    """Remove these positions from the beginning of the log."""

    gateway: str
    positions: tuple[int, ...]


class LogTrimmed(NamedTuple):
    """The position up to which the log was trimmed."""

    cut: int


DeltaCommand = (
    PushDeltas
    | InspectPush
    | RecordDelivery
    | AdvanceCursor
    | SaveTableSchema
    | SaveSyncRules
    | FlushGateway
    | ForgetClients
    | TrimLog
)
