"""Commands of streams, and their outcomes. Ids and times of the request are in the command and never looked up."""

from __future__ import annotations

from typing import NamedTuple

from semel.kernel.errors import Refusal
from semel.store.table import Key


class Content(NamedTuple):
    """A body, ready to be stored; its flaw is reported only if no other refusal applies."""

    data: bytes
    messages: int
    flaw: Refusal | None = None


NO_CONTENT = Content(b"", 0)
UNREAD = Content(b"", 0, Refusal("INTERNAL_ERROR", "The content was not read."))
"""Placeholder of large content that was not parsed yet. If a decision needs the content, it answers with this flaw, and
the command is sent again with the content.
"""


class ProducerClaim(NamedTuple):
    """The producer headers of a request."""

    id: bytes
    packed: bytes
    epoch: int
    seq: int


class Fork(NamedTuple):
    """What a new stream is forked from, as it was planned by reading the source: content never changes, so the plan
    holds as long as the source has this id.
    """

    source_scope: bytes
    source_path: bytes
    source_id: bytes
    """Empty if there was no source when the plan was made."""
    asked: int | None
    """The position of the fork offset; None for the tail."""
    sub_offset: int
    position: int | None
    """The position up to which content is shared; None for the tail."""
    prefix: Content
    """The beginning of the next append that a sub-offset cuts out."""
    inherits_type: bool
    flaw: Refusal | None = None
    """Why this source cannot be forked at this offset."""


class Retention(NamedTuple):
    """How much of the front of a stream is dropped: by age, by size, or by either."""

    max_age_ms: int | None
    max_bytes: int | None


class Create(NamedTuple):
    """Create a stream, or confirm an equal one."""

    scope: bytes
    path: bytes
    id: bytes
    content_type: bytes
    ttl_seconds: int | None
    expires_at: int | None
    expires_text: bytes | None
    closed: bool
    content: Content
    retention: Retention | None = None
    """None if the request names none."""
    fork: Fork | None = None


class Append(NamedTuple):
    """Append, append and close, or close."""

    scope: bytes
    key: bytes | None
    fingerprint: bytes
    content_type: bytes | None
    content: Content
    closes: bool
    seq: bytes | None
    producer: ProducerClaim | None
    flaw: Refusal | None
    if_match: bytes | None = None


class Delete(NamedTuple):
    """Delete a stream."""

    scope: bytes


class Expire(NamedTuple):
    """Delete an expired stream; a chore."""

    scope: bytes


class Release(NamedTuple):
    """Count a fork that has ended no more at its source; a chore, and the step after its end."""

    id: bytes
    source_scope: bytes
    source_id: bytes


class Trim(NamedTuple):
    """Drop the front of a stream by its retention; a chore."""

    scope: bytes
    id: bytes
    floor: int
    """The first position that is retained from now on."""
    freed: int
    """The position up to which `chunks` free the content."""
    chunks: tuple[Key, ...]
    due_at: int
    """The time of the next look."""


class Purge(NamedTuple):
    """Free rows of a deleted or expired stream; a chore."""

    id: bytes
    chunks: tuple[Key, ...]
    producers: tuple[Key, ...]
    is_last: bool


StreamCommand = Create | Append | Delete | Expire | Release | Trim | Purge


class Created(NamedTuple):
    """The stream exists: created now, or found equal."""

    is_new: bool
    content_type: bytes
    tail: int
    closed: bool
    tail_epoch: int = 0
    """The epoch in the offset of the tail."""


class Appended(NamedTuple):
    """The append took effect, now or earlier."""

    status: int
    tail: int
    closed: bool
    epoch: int | None = None
    seq: int | None = None
    replayed: bool = False
    is_new: bool = False
    """Whether this request itself took effect; only metrics use it."""
    tail_epoch: int = 0
    """The epoch in the offset of the tail: the same in every replay."""


class Deleted(NamedTuple):
    """The stream was deleted."""


StreamAnswer = Created | Appended | Deleted | Refusal | None
