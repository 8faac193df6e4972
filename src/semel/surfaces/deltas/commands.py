"""The commands of deltas, their answers, and refusals with the deltas that caused them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from semel.surfaces.deltas.model import Delta, DeltaCursor, DeltaEntry, DeltaReplica

MAX_FLAWS = 100
"""Limit of flaws that a refusal names: the first ones."""


class DeltaFlaw(NamedTuple):
    """One delta that cannot be accepted."""

    place: int
    """The index of the delta in the push."""
    delta_id: str
    """As it was sent, if it was sent at all."""
    code: str
    message: str
    status: int


class DeltaRefusal(NamedTuple):
    """A refusal as a decision answers it. `code` is without the name of the surface."""

    code: str
    message: str
    status: int | None = None
    """None is the one of the registry."""
    flaws: Sequence[DeltaFlaw] = ()
    server_hlc: int | None = None
    retry_after: int | None = None
    """Seconds."""


class RefusedDeltas(Exception):  # noqa: N818 - a refusal is an answer, not an error of ours
    """Carries a refusal to the transport, which answers with it."""

    def __init__(
        self,
        code: str,
        message: str,
        status: int | None = None,
        flaws: Sequence[DeltaFlaw] = (),
        server_hlc: int | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.refusal = DeltaRefusal(code, message, status, flaws, server_hlc, retry_after)

    @classmethod
    def of(cls, refusal: DeltaRefusal) -> RefusedDeltas:
        """The exception for a refusal that a decision has answered."""
        return cls(*refusal)


def refusal_of(flaws: Sequence[DeltaFlaw]) -> DeltaRefusal:
    """The refusal of a push: by the first of its flaws, with all of them listed."""
    first = flaws[0]
    return DeltaRefusal(first.code, f"deltas[{first.place}]: {first.message}", first.status, tuple(flaws[:MAX_FLAWS]))


class PushDeltas(NamedTuple):
    """Commit these deltas, all or none."""

    replica: DeltaReplica
    deltas: tuple[Delta, ...]
    is_named: bool = True
    """Whether callers are known by name: then the replica of another author is known by the author's own."""
    shown: int = 0
    """The position that an unknown replica has acknowledged; a push of its own makes it known."""
    is_plain: bool = False
    """Whether the client uses the plain dialect: its progress is not stored, and it needs no repair."""
    start: int = 0
    """The place of the first of them, in a push that is decided in parts."""
    has_begun: bool = False
    """Whether a part before it has stored something."""
    goes_on: bool = False
    """Whether more parts follow: then it assigns no cursor, and the progress of the replica does not change yet."""


class InspectPush(NamedTuple):
    """Find the flaws of these deltas that are known before any of them is applied."""

    push: PushDeltas


class PushInspected(NamedTuple):
    """Flaws by the step that finds them."""

    flaws: tuple[Sequence[DeltaFlaw], ...]
    server_hlc: int


class DeltasPushed(NamedTuple):
    """All deltas are on disk, those that were known before included."""

    server_hlc: int
    accepted: int
    duplicates: int
    entries: tuple[DeltaEntry, ...]
    first: int = 0
    """In the plain dialect, the position of the first of its new deltas; 0 when none was new."""


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
    """Whether the cursor, the end of the log, is an alias already, so that a new number is needed."""
    mark: tuple[int, int, bytes] = (0, 0, b"")
    """The replica's progress as the page was read with it: if that has changed, the page must be read again."""


class AdvanceCursor(NamedTuple):
    """A replica has nothing to receive for long: its cursor means the end of the log from now on."""

    replica: DeltaReplica
    since: int
    cursor: int
    mark: tuple[int, int, bytes]


class DeliveryRecorded(NamedTuple):
    """The progress is on disk; without a cursor the state has changed and the page must be read again."""

    cursor: int | None


class SaveTableSchema(NamedTuple):
    """Save the columns of a table: other columns are refused from now on."""

    gateway: str
    table: str
    columns: tuple[tuple[str, str], ...]
    """Name and type of each."""


class SaveSyncRules(NamedTuple):
    """Save the sync rules of a gateway: canonical JSON."""

    gateway: str
    rules: bytes


class FlushGateway(NamedTuple):
    """Answer when all writes before it are on disk."""

    gateway: str


class GatewaySaved(NamedTuple):
    """It is on disk."""


class ForgetClients(NamedTuple):
    """Forget the progress of clients: keys of client and subject."""

    gateway: str
    clients: tuple[tuple[bytes, bytes], ...]
    before_ms: int | None = None
    """Only clients that were not active since; None for all of them."""


class ClientsForgotten(NamedTuple):
    """The number of forgotten clients."""

    clients: int


class TrimLog(NamedTuple):
    """Remove these positions from the beginning of the log."""

    gateway: str
    positions: tuple[int, ...]


class LogTrimmed(NamedTuple):
    """The position up to which the log was removed."""

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
