"""Commands and answers of deltas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from semel.contracts.deltas.model import Cursor, Delta, Entry, Replica
from semel.contracts.deltas.refusals import Flaw


class Push(NamedTuple):
    """Commit these deltas, all or none."""

    replica: Replica
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


class Inspect(NamedTuple):
    """Find the flaws of these deltas that are known before any of them is applied."""

    push: Push


class Inspected(NamedTuple):
    """Flaws by the step that finds them."""

    flaws: tuple[Sequence[Flaw], ...]
    server_hlc: int


class Pushed(NamedTuple):
    """All deltas are on disk, those that were known before included."""

    server_hlc: int
    accepted: int
    duplicates: int
    entries: tuple[Entry, ...]
    first: int = 0
    """In the plain dialect, the position of the first of its new deltas; 0 when none was new."""


class Give(NamedTuple):
    """Record the progress of a replica before a page is sent to it."""

    replica: Replica
    cursor: int
    shown: int = 0
    """The position that the replica has acknowledged by its request."""
    rest: Cursor | None = None
    """The meaning of the cursor, when it is an alias."""
    gone_back_at: int | None = None
    """The end of the log when the replica went back to an older cursor; None when it did not."""
    is_taken: bool = False
    """Whether the cursor, the end of the log, is an alias already, so that a new number is needed."""
    mark: tuple[int, int, bytes] = (0, 0, b"")
    """The replica's progress as the page was read with it: if that has changed, the page must be read again."""


class Rest(NamedTuple):
    """A replica has nothing to receive for long: its cursor means the end of the log from now on."""

    replica: Replica
    since: int
    cursor: int
    mark: tuple[int, int, bytes]


class Given(NamedTuple):
    """The progress is on disk; without a cursor the state has changed and the page must be read again."""

    cursor: int | None


class SaveSchema(NamedTuple):
    """Save the columns of a table: other columns are refused from now on."""

    gateway: str
    table: str
    columns: tuple[tuple[str, str], ...]
    """Name and type of each."""


class SaveRules(NamedTuple):
    """Save the sync rules of a gateway: canonical JSON."""

    gateway: str
    rules: bytes


class Flush(NamedTuple):
    """Answer when all writes before it are on disk."""

    gateway: str


class Saved(NamedTuple):
    """It is on disk."""


class Forget(NamedTuple):
    """Forget the progress of clients: keys of client and subject."""

    gateway: str
    clients: tuple[tuple[bytes, bytes], ...]
    before_ms: int | None = None
    """Only clients that were not active since; None for all of them."""


class Forgotten(NamedTuple):
    """The number of forgotten clients."""

    clients: int


class Trim(NamedTuple):
    """Remove these positions from the beginning of the log."""

    gateway: str
    positions: tuple[int, ...]


class Trimmed(NamedTuple):
    """The position up to which the log was removed."""

    cut: int


Command = Push | Inspect | Give | Rest | SaveSchema | SaveRules | Flush | Forget | Trim
