"""New Idempotency-Keys: UUIDs of version 7, so that a server's index of keys grows at its end."""

from __future__ import annotations

import secrets
import time

from semel.kernel.keys import time_ordered_uuid


def fresh_key() -> str:
    """A unique key in lower case, later ones behind earlier ones."""
    return time_ordered_uuid(time.time_ns() // 1_000_000, secrets.token_bytes(10))


def line_key(base: str, line: int | str) -> str:
    """The key of one line of an import: the same each time the import is run."""
    return f"{base}-{line}"
