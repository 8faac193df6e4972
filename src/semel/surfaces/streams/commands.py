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


class Purge(NamedTuple):
    """Free rows of a deleted or expired stream; a chore."""

    id: bytes
    chunks: tuple[Key, ...]
    producers: tuple[Key, ...]
    is_last: bool


StreamCommand = Create | Append | Delete | Expire | Purge


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
