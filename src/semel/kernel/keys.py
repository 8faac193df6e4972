"""Encoding of names from clients as stored keys.

A stored key begins with a tag, so that no two names can ever meet: raw for up to 32 bytes, a packed UUID, or the
SHA-256 of a longer name. Short names stay raw because hashing would destroy the order of time-ordered keys, which is
worth several times the speed of a large index. Only the exact lower-case 36-character form of a UUID is packed: names
are case-sensitive, and every other spelling is another name.
"""

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
    """The name behind a stored key, None where only its hash was kept."""
    if key[:1] == RAW:
        return key[1:]
    if key[:1] == UUID:
        text = hexlify(key[1:])
        return b"-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
    return None


def time_ordered_id(now_ms: int, random: bytes) -> bytes:
    """Sixteen bytes that sort by time: six of the clock, ten of chance."""
    if len(random) != 10:
        raise ValueError("a time-ordered id takes ten random bytes")
    return now_ms.to_bytes(6, "big") + random


def time_ordered_uuid(now_ms: int, random: bytes) -> str:
    """A UUID of version 7 in lower case: a key for one write, with which an index of keys grows at its end."""
    number = int.from_bytes(time_ordered_id(now_ms, random), "big")
    return str(uuid.UUID(int=number & _FREE_BITS | _VERSION | _VARIANT))
