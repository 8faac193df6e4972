"""Commands of events and their results, and the interface of the application's validator.

The validator is a pure callable that may reject an event before it is committed. It is called after the duplicate
check, so the retry of a committed event gets its recorded answer even if the validator would reject it now. It may be
called twice for one item and must do no I/O. An exception in it is a fault of the server, never a rejection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from semel.surfaces.events.rules.partitions import PartitionSet

VALIDATION_FAILED = "validation_failed"
FORBIDDEN = "forbidden"
BAD_REQUEST = "bad_request"
PAYLOAD_TOO_LARGE = "payload_too_large"
WATERMARK_MISMATCH = "watermark_mismatch"


class EventRejection(NamedTuple):
    """An item that was not committed; nothing of it is stored."""

    reason: str
    errors: tuple[tuple[str, str], ...]
    """Pairs of a dot path inside the item and a sentence that says what is wrong there."""
    watermark: int | None = None
    """The watermark of the item's partitions, if the item expected another one."""


class EventItem(NamedTuple):
    """One event to commit. If parsing found a flaw, the item is answered with it."""

    id: str
    name: bytes
    key: bytes
    digest: bytes
    partitions: PartitionSet
    event: Any
    """The parsed event; None if the parsed values would take too much memory: then only `text` is set."""
    text: bytes
    flaw: EventRejection | None = None
    excess: EventRejection | None = None
    """Why the item may not be committed now. If it was committed before, it gets its recorded answer."""
    if_watermark: int | None = None
    """Commit the item only if this is the watermark of its partitions: the position of the last event in any of them.
    It is a condition of one attempt: it is neither stored nor a part of the content.
    """


class EventSubmit(NamedTuple):
    """Commit the items of one request, each on its own, in list order."""

    items: tuple[EventItem, ...]
    client_id: str
    origin: bytes
    stops: bool = False
    """Whether the request stops at its first rejected item."""


class EventPrune(NamedTuple):
    """Delete the bodies of these events, oldest first: their positions and the partitions that index them."""

    places: tuple[tuple[int, tuple[bytes, ...]], ...]


class EventCommitted(NamedTuple):
    """The position of an item in the log. A retry gets the position of the first commit."""

    committed_id: int
    committed_at: int
    is_new: bool


class EventNotProcessed(NamedTuple):
    """An item after the one that stopped the request."""

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
"""Gets the candidate and the earlier accepted candidates of the request; returns what is wrong, or nothing."""
