"""Parsing of the `Idempotency-Key` header: one rule for every surface.

Outer spaces and tabs go. A value that is wholly a quoted string in the sense of RFC 8941 is unwrapped, so that `"k1"`
and `k1` are one key; any other value is taken as it stands, quotes included. What is left is 1 to 256 characters from
space to tilde, and case counts.
"""

from __future__ import annotations

import re

MAX_LENGTH = 256

_QUOTED = re.compile(rb'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"')
_ESCAPED = re.compile(rb"\\(.)")
_ALLOWED = re.compile(rb"[\x20-\x7e]{1,256}")
_PLAIN = re.compile(rb"[\x21\x23-\x7e](?:[\x20-\x7e]{0,254}[\x21-\x7e])?")
"""A key that is what it looks like: nothing around it to trim, and no quote that could begin a string."""


class InvalidKeyError(ValueError):
    """The key cannot be used; the message says why in one sentence."""


def parse_idempotency_key(values: list[bytes]) -> bytes | None:
    """The key in these header values, None without the header; anything doubtful is an error, never a guess."""
    if not values:
        return None
    if len(values) == 1 and _PLAIN.fullmatch(values[0]):
        return values[0]
    if len(values) > 1:
        raise InvalidKeyError("Send the Idempotency-Key header once; it was given more than once.")
    key = unwrap(values[0].strip(b" \t"))
    if not key:
        raise InvalidKeyError("The Idempotency-Key is empty; send 1 to 256 characters.")
    if len(key) > MAX_LENGTH:
        raise InvalidKeyError(f"The Idempotency-Key has {len(key)} characters; at most {MAX_LENGTH} are allowed.")
    if _ALLOWED.fullmatch(key) is None:
        raise InvalidKeyError("The Idempotency-Key may hold only the printable ASCII characters, space to tilde.")
    return key


def unwrap(value: bytes) -> bytes:
    """The text of a quoted string, or the value itself when it is not wholly one."""
    quoted = _QUOTED.fullmatch(value) if value[:1] == b'"' else None
    return value if quoted is None else _ESCAPED.sub(rb"\1", quoted.group(1))
