"""Commands of events and their results, and the interface of the application's validator.

The validator is a pure callable that may reject an event before it is committed. It is called after the duplicate
check, so the retry of a committed event gets its recorded answer whatever the validator says by then. It may be
called twice for one item and does no I/O. An exception in it is a fault of the server, never a rejection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from semel.surfaces.events.rules.partitions import PartitionSet

VALIDATION_FAILED = "validation_failed"
FORBIDDEN = "forbidden"
BAD_REQUEST = "bad_request"
PAYLOAD_TOO_LARGE = "payload_too_large"


class EventRejection(NamedTuple):
    """An item that was not committed; nothing of it is stored."""

    reason: str
    errors: tuple[tuple[str, str], ...]
    """A dot path inside the item, and a sentence."""


class EventItem(NamedTuple):
    """One event to commit. A flaw that was found while parsing is the item's whole answer."""

    id: str
    name: bytes
    key: bytes
    digest: bytes
    partitions: PartitionSet
    event: Any
    """As values; None for one whose values would take much memory: then there is its text alone."""
    text: bytes
    flaw: EventRejection | None = None
    excess: EventRejection | None = None
    """Why it may not be committed now; if it has been committed before, it has its answer."""


class EventSubmit(NamedTuple):
    """Commit the items of one request, each on its own, in list order."""

    items: tuple[EventItem, ...]
    client_id: str
    origin: bytes
    stops: bool = False
    """Whether items behind the first rejection are not processed."""


class EventPrune(NamedTuple):
    """Forget the bodies of these events, oldest first: positions and the names they are placed under."""

    places: tuple[tuple[int, tuple[bytes, ...]], ...]


class EventCommitted(NamedTuple):
    """The position of an item in the log: that of the first commit, on a retry."""

    committed_id: int
    committed_at: int
    is_new: bool


class EventNotProcessed(NamedTuple):
    """An item behind the one that stopped its request."""

    blocked_by: str


EventResult = EventCommitted | EventRejection | EventNotProcessed


class EventSubmitted(NamedTuple):
    """One result for each item, in order, and the time of the decision."""

    results: tuple[EventResult, ...]
    decided_at: int


EventCommand = EventSubmit | EventPrune


class Candidate(NamedTuple):
    """An event before its commit."""

    id: str
    partitions: tuple[str, ...]
    event: Any
    client_id: str


Complaint = tuple[str, str]
"""A dot path inside the item, and a sentence that says what is wrong there."""

Validator = Callable[[Candidate, Sequence[Candidate]], Iterable[Complaint] | None]
"""Told the candidate and those of the same request that were accepted before it; says what is wrong, or nothing."""
