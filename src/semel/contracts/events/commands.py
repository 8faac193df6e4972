"""Commands and answers of events."""

from __future__ import annotations

from typing import Any, NamedTuple

from semel.contracts.events.rules.partitions import PartitionSet

VALIDATION_FAILED = "validation_failed"
FORBIDDEN = "forbidden"
BAD_REQUEST = "bad_request"
PAYLOAD_TOO_LARGE = "payload_too_large"


class Rejection(NamedTuple):
    """An item that was not committed; nothing of it is stored."""

    reason: str
    errors: tuple[tuple[str, str], ...]
    """A dot path inside the item, and a sentence."""


class Item(NamedTuple):
    """One event to commit. A flaw that was found while parsing is the item's whole answer."""

    id: str
    name: bytes
    key: bytes
    digest: bytes
    partitions: PartitionSet
    event: Any
    """As values; None for one whose values would take much memory: then there is its text alone."""
    text: bytes
    flaw: Rejection | None = None
    excess: Rejection | None = None
    """Why it may not be committed now; if it has been committed before, it has its answer."""


class Submit(NamedTuple):
    """Commit the items of one request, each on its own, in list order."""

    items: tuple[Item, ...]
    client_id: str
    origin: bytes
    stops: bool = False
    """Whether items behind the first rejection are not processed."""


class Prune(NamedTuple):
    """Forget the bodies of these events, oldest first: positions and the names they are placed under."""

    places: tuple[tuple[int, tuple[bytes, ...]], ...]


class Committed(NamedTuple):
    """The position of an item in the log: that of the first commit, on a retry."""

    committed_id: int
    committed_at: int
    is_new: bool


class NotProcessed(NamedTuple):
    """An item behind the one that stopped its request."""

    blocked_by: str


Result = Committed | Rejection | NotProcessed


class Submitted(NamedTuple):
    """One result for each item, in order, and the time of the decision."""

    results: tuple[Result, ...]
    decided_at: int


Command = Submit | Prune
