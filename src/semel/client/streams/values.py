"""Immutable arguments and results of calls to streams."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from semel.client.errors import BadAnswerError
from semel.client.json_text import elements

START, NOW = "-1", "now"
"""Offsets: the beginning of a stream, and its end at the time of the call."""


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """A stream as the server describes it."""

    name: str
    content_type: str
    tail: str
    """The offset behind its last content."""
    is_closed: bool
    is_created: bool = False
    """Whether this call created it; False if an equal one existed."""
    ttl_seconds: int | None = None
    expires_at: str | None = None
    retention_age: int | None = None
    """Seconds after which content may be deleted; None means never."""
    retention_bytes: int | None = None
    """The newest content that is kept, in bytes; None means all."""
    earliest_offset: str | None = None
    """The first offset that can be read, if the stream has a retention."""


@dataclass(frozen=True, slots=True)
class AppendResult:
    """The answer to an append."""

    offset: str
    """The offset behind the content. A replay by key has the first one; a producer's duplicate has the current tail."""
    replayed: bool
    """Whether an earlier attempt had stored it: nothing was stored now."""
    is_closed: bool = False
    key: str | None = None
    """The idempotency key."""
    seq: int | None = None
    """The producer's highest accepted number."""


@dataclass(frozen=True, slots=True)
class ContentPage:
    """A piece of a stream."""

    data: bytes
    content_type: str
    next_offset: str
    """Where to read on; store it after the data was handled."""
    is_up_to_date: bool
    """Whether it reaches the tail."""
    is_closed: bool
    """Whether no more content will follow."""
    etag: str | None = None
    """For `if_match` of an append: only if nothing was appended since."""

    def messages(self) -> list[Any]:
        """The messages of a JSON stream."""
        return list(json.loads(self.data)) if self.data else []

    def texts(self) -> list[str]:
        """The messages of a JSON stream in their own text, one line each, so that no number changes."""
        try:
            return list(elements(self.data.decode())) if self.data else []
        except ValueError:
            raise BadAnswerError("The server sent content that is not a JSON array.") from None


@dataclass(frozen=True, slots=True)
class StreamProducer:
    """A producer of a stream, and the last append that was accepted of it."""

    id: str | None
    """None if the id has more than 32 bytes: then only its hash is stored."""
    epoch: int
    seq: int


@dataclass(frozen=True, slots=True)
class ProducerList:
    """A page of the producers of a stream."""

    producers: list[StreamProducer]
    next_after: str | None
    """Pass it as `after` for the next page; None at the end."""


@dataclass(frozen=True, slots=True)
class StreamList:
    """A page of the list of streams."""

    streams: list[dict[str, Any]]
    next_after: str | None
    """Pass it as `after` for the next page; None at the end."""
