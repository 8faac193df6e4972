"""Media types: equal if type and subtype are equal, regardless of case and parameters."""

from __future__ import annotations

import re

DEFAULT_MEDIA_TYPE = b"application/octet-stream"
_JSON = b"application/json"
_USABLE = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+/[!#$%&'*+\-.^_`|~0-9A-Za-z]+[ \t]*(;|$)")


def is_usable(content_type: bytes) -> bool:
    """Whether the value has a type and a subtype."""
    return _USABLE.match(content_type) is not None


def essence(content_type: bytes) -> bytes:
    """Type and subtype in lower case."""
    return content_type.partition(b";")[0].strip().lower()


def same_media_type(one: bytes, other: bytes) -> bool:
    """Whether two values differ only in parameters and case."""
    return one == other or essence(one) == essence(other)


def is_json(content_type: bytes) -> bool:
    """Whether it is JSON, whose messages are stored one by one."""
    return content_type == _JSON or essence(content_type) == _JSON


def is_text(content_type: bytes) -> bool:
    """Whether the content can be sent in an event stream unchanged."""
    kind = essence(content_type)
    return kind.startswith(b"text/") or kind == _JSON
