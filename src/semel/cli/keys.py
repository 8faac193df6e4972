"""Fresh Idempotency-Keys: UUIDs of version 7, so that a server's index of keys grows at its end."""

from __future__ import annotations

import secrets
import time
from uuid import UUID

from semel.kernel.keys import time_ordered_id

_VERSION = 0x7 << 76
_VARIANT = 0x2 << 62
_FREE_BITS = ~(0xF << 76 | 0x3 << 62)


def fresh_key() -> str:
    """A key that nobody else has, in lower case, later ones behind earlier ones."""
    number = int.from_bytes(time_ordered_id(time.time_ns() // 1_000_000, secrets.token_bytes(10)), "big")
    return str(UUID(int=number & _FREE_BITS | _VERSION | _VARIANT))


def line_key(base: str, line: int | str) -> str:
    """The key of one line of an import: the same each time the import is run."""
    return f"{base}-{line}"
