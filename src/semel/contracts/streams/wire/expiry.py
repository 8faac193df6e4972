"""Parsing of `Stream-TTL` and `Stream-Expires-At`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

from semel.contracts.fields import Fields
from semel.kernel.errors import Refused

MAX_TTL_DIGITS = 15

_SECONDS = re.compile(rb"0|[1-9][0-9]*")
_RFC3339 = re.compile(
    rb"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:[Zz]|([+-])(\d\d):(\d\d))", re.ASCII
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_expiry(fields: Fields) -> tuple[int | None, int | None, bytes | None]:
    """Time to live in seconds, end of life in milliseconds, and the latter as it was written."""
    ttl = fields.single(b"stream-ttl", "INVALID_EXPIRY")
    end = fields.single(b"stream-expires-at", "INVALID_EXPIRY")
    if ttl is not None and end is not None:
        raise Refused("INVALID_EXPIRY", "Send Stream-TTL or Stream-Expires-At, not both.")
    if ttl is not None:
        return parse_ttl(ttl), None, None
    return None, None if end is None else parse_instant(end), end


def parse_ttl(text: bytes) -> int:
    """Whole seconds, written plainly."""
    if _SECONDS.fullmatch(text) is None or len(text) > MAX_TTL_DIGITS:
        raise Refused("INVALID_EXPIRY", "Stream-TTL is a whole number of seconds such as 3600, without sign or zeros.")
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
    return Refused("INVALID_EXPIRY", "Stream-Expires-At is an RFC 3339 time such as 2030-01-31T12:00:00Z.")
