"""The stream name in the path, and the headers that name a producer, a time to live or an end."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache

from semel.kernel.errors import Refused
from semel.kernel.header_fields import HeaderFields
from semel.kernel.keys import pack
from semel.kernel.producer import MAX_NUMBER
from semel.surfaces.streams.commands import ProducerClaim, Retention

ROOT = b"/v1/stream/"
"""The path before the names of streams."""
ALIAS = b"/streams/"
"""The same without a version, as the specification of idempotent appends has it in its examples."""
MAX_NAME_BYTES = 1_024
RESERVED_NAME = b"__ds"

_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})?")
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")


CACHED_NAMES = 4_096
"""Size of the cache of checked names, because the same few are used again and again."""


def name_in(raw_path: bytes) -> bytes:
    """The stream name in a path below either root."""
    return parse_name(raw_path[len(ALIAS if raw_path.startswith(ALIAS) else ROOT) :])


@lru_cache(CACHED_NAMES)
def parse_name(raw: bytes) -> bytes:
    """The stream name in the path after the stream root."""
    name = _ESCAPE.sub(_percent_decoded, raw) if b"%" in raw else raw
    if not 1 <= len(name) <= MAX_NAME_BYTES:
        raise Refused(
            "INVALID_REQUEST", f"A stream name must have 1 to {MAX_NAME_BYTES} bytes; this one has {len(name)}."
        )
    if _CONTROL.search(name):
        raise Refused("INVALID_REQUEST", "A stream name must not have control characters.")
    try:
        name.decode("utf-8")
    except UnicodeDecodeError:
        raise Refused("INVALID_REQUEST", "A stream name must be UTF-8, percent-encoded where needed.") from None
    if b"." in name and any(part in (b".", b"..") for part in name.split(b"/")):
        raise Refused("INVALID_REQUEST", "A stream name must not have `.` or `..` segments.")
    if name == RESERVED_NAME or name.startswith(RESERVED_NAME + b"/"):
        raise Refused("NOT_FOUND", "There is nothing at this control path.")
    return name


def _percent_decoded(found: re.Match[bytes]) -> bytes:
    if found.group(1) is None:
        raise Refused("INVALID_REQUEST", "The path has a percent sign that is not followed by two hex digits.")
    return bytes.fromhex(found.group(1).decode())


stored_name = lru_cache(CACHED_NAMES)(pack)
"""The key under which the name of a stream is stored."""


MAX_PRODUCER_ID_BYTES = 256

_DIGITS = re.compile(rb"[0-9]{1,16}")


def parse_producer(fields: HeaderFields) -> ProducerClaim | None:
    """The producer headers; None without them."""
    one = fields.one
    if b"producer-id" not in one and b"producer-epoch" not in one and b"producer-seq" not in one:
        return None
    name, epoch, seq = (
        fields.single(header, "INVALID_PRODUCER") for header in (b"producer-id", b"producer-epoch", b"producer-seq")
    )
    if name is None or epoch is None or seq is None:
        raise Refused("INVALID_PRODUCER", "Send Producer-Id, Producer-Epoch and Producer-Seq together.")
    if not 1 <= len(name) <= MAX_PRODUCER_ID_BYTES:
        raise Refused("INVALID_PRODUCER", f"Producer-Id must have 1 to {MAX_PRODUCER_ID_BYTES} bytes.")
    return ProducerClaim(name, pack(name), _number(epoch, "Producer-Epoch"), _number(seq, "Producer-Seq"))


def _number(text: bytes, header: str) -> int:
    if _DIGITS.fullmatch(text) is None or int(text) > MAX_NUMBER:
        raise Refused("INVALID_PRODUCER", f"{header} must be a whole number from 0 to 2^53-1.")
    return int(text)


MAX_TTL_DIGITS = 15
MAX_RETENTION_DIGITS = 15

_SECONDS = re.compile(rb"0|[1-9][0-9]*")
_RFC3339 = re.compile(
    rb"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:[Zz]|([+-])(\d\d):(\d\d))", re.ASCII
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_expiry(fields: HeaderFields) -> tuple[int | None, int | None, bytes | None]:
    """The time to live in seconds, the expiry in milliseconds, and the text of the expiry."""
    ttl = fields.single(b"stream-ttl", "INVALID_EXPIRY")
    end = fields.single(b"stream-expires-at", "INVALID_EXPIRY")
    if ttl is not None and end is not None:
        raise Refused("INVALID_EXPIRY", "Send Stream-TTL or Stream-Expires-At, not both.")
    if ttl is not None:
        return parse_ttl(ttl), None, None
    return None, None if end is None else parse_instant(end), end


def parse_retention(fields: HeaderFields) -> Retention | None:
    """The retention that a PUT names: an age in seconds, a size in bytes, or both; 0 stands for no limit."""
    age = fields.single(b"stream-retention-age", "INVALID_RETENTION")
    size = fields.single(b"stream-retention-bytes", "INVALID_RETENTION")
    if age is None and size is None:
        return None
    seconds, max_bytes = (_retained(text) for text in (age, size))
    return Retention(None if seconds is None else seconds * 1_000, max_bytes)


def _retained(text: bytes | None) -> int | None:
    if text is None:
        return None
    if _SECONDS.fullmatch(text) is None or len(text) > MAX_RETENTION_DIGITS:
        raise Refused(
            "INVALID_RETENTION",
            "Stream-Retention-Age (seconds) and Stream-Retention-Bytes must be whole numbers; 0 is no limit.",
        )
    return int(text) or None


def parse_ttl(text: bytes) -> int:
    """A number of seconds in plain digits."""
    if _SECONDS.fullmatch(text) is None or len(text) > MAX_TTL_DIGITS:
        raise Refused(
            "INVALID_EXPIRY",
            "Stream-TTL must be a whole number of seconds such as 3600, without sign or leading zeros.",
        )
    return int(text)


def parse_instant(text: bytes) -> int:
    """Milliseconds since 1970 of an RFC 3339 time."""
    found = _RFC3339.fullmatch(text)
    if found is None:
        raise _invalid_instant()
    year, month, day, hour, minute, second = (int(found.group(place)) for place in range(1, 7))
    leap = timedelta(seconds=1) if second == 60 else timedelta()
    try:
        zone = _zone(found)
        moment = datetime(year, month, day, hour, minute, min(second, 59) if leap else second, tzinfo=zone)
        elapsed = moment + leap - _EPOCH
    except (ValueError, OverflowError):
        raise _invalid_instant() from None
    fraction = int(((found.group(7) or b"0") + b"00")[:3])
    return elapsed // timedelta(milliseconds=1) + fraction


def _zone(found: re.Match[bytes]) -> timezone:
    if found.group(8) is None:
        return UTC
    hours, minutes = int(found.group(9)), int(found.group(10))
    if hours > 23 or minutes > 59:
        raise ValueError("no such zone")
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(offset if found.group(8) == b"+" else -offset)


def _invalid_instant() -> Refused:
    return Refused("INVALID_EXPIRY", "Stream-Expires-At must be an RFC 3339 time such as 2030-01-31T12:00:00Z.")
