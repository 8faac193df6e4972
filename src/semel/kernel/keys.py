"""Keys that clients make: the `Idempotency-Key` header, the stored form of a key, and the prefix that may be shown."""

from __future__ import annotations

import re
import uuid
from binascii import hexlify, unhexlify
from hashlib import sha256

RAW, UUID, HASHED = b"\x00", b"\x01", b"\x02"
MAX_RAW = 32

_VERSION = 0x7 << 76
_VARIANT = 0x2 << 62
_FREE_BITS = ~(0xF << 76 | 0x3 << 62)
_UUID_TEXT = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def pack(name: bytes) -> bytes:
    """The stored form of a name."""
    if len(name) <= MAX_RAW:
        return RAW + name
    if len(name) == 36 and _UUID_TEXT.fullmatch(name):
        return UUID + unhexlify(name.replace(b"-", b""))
    return HASHED + sha256(name).digest()


def unpack(key: bytes) -> bytes | None:
    """The name of a stored key; None if only its hash was kept."""
    if key[:1] == RAW:
        return key[1:]
    if key[:1] == UUID:
        text = hexlify(key[1:])
        return b"-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
    return None


def time_ordered_id(now_ms: int, random: bytes) -> bytes:
    """Sixteen bytes that sort by time: six bytes of the clock and ten random bytes."""
    if len(random) != 10:
        raise ValueError("a time-ordered id takes ten random bytes")
    return now_ms.to_bytes(6, "big") + random


def time_ordered_uuid(now_ms: int, random: bytes) -> str:
    """A UUID of version 7 in lower case: a key for one write. Such keys are added at the end of an index."""
    number = int.from_bytes(time_ordered_id(now_ms, random), "big")
    return str(uuid.UUID(int=number & _FREE_BITS | _VERSION | _VARIANT))


MAX_KEY_LENGTH = 256

_QUOTED = re.compile(rb'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"')
_ESCAPED = re.compile(rb"\\(.)")
_ALLOWED = re.compile(rb"[\x20-\x7e]{1,256}")
_PLAIN = re.compile(rb"[\x21\x23-\x7e](?:[\x20-\x7e]{0,254}[\x21-\x7e])?")
"""A key that needs no parsing: no white space to trim, and no quote that could begin a string."""


_VISIBLE = re.compile(rb'"([!#-\[\]-~]{1,256})"|[!#-~][!-~]{0,255}')
"""A key of visible characters, bare or as a quoted string without escapes."""


class InvalidKeyError(ValueError):
    """The key cannot be used; the message says why in one sentence."""


def parse_idempotency_key(values: list[bytes]) -> bytes | None:
    """The key in these header values; None without the header. An ambiguous value is an error, never a guess."""
    if not values:
        return None
    if len(values) == 1 and _PLAIN.fullmatch(values[0]):
        return values[0]
    if len(values) > 1:
        raise InvalidKeyError("Send the Idempotency-Key header once; it was given more than once.")
    key = unwrap(values[0].strip(b" \t"))
    if not key:
        raise InvalidKeyError("The Idempotency-Key is empty; send 1 to 256 characters.")
    if len(key) > MAX_KEY_LENGTH:
        raise InvalidKeyError(f"The Idempotency-Key has {len(key)} characters; at most {MAX_KEY_LENGTH} are allowed.")
    if _ALLOWED.fullmatch(key) is None:
        raise InvalidKeyError("The Idempotency-Key may hold only the printable ASCII characters, space to tilde.")
    return key


def visible_key(value: bytes) -> bytes | None:
    """The key in a header value without spaces and escapes; None leaves the value to `parse_idempotency_key`."""
    found = _VISIBLE.fullmatch(value)
    return None if found is None else found[1] or value


def unwrap(value: bytes) -> bytes:
    """The content of a quoted string; a value that is not entirely one quoted string is returned as it is."""
    quoted = _QUOTED.fullmatch(value) if value[:1] == b'"' else None
    return value if quoted is None else _ESCAPED.sub(rb"\1", quoted.group(1))


SHOWN = 8


def key_prefix(key: str) -> str:
    """The first eight characters of a key; of a key with at most eight characters, the first half."""
    return key[:SHOWN] if len(key) > SHOWN else key[: len(key) // 2]
