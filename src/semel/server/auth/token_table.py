"""The rows of tokens that are stored with the data: hashes, names, roles, scopes and times, and never a token.

Look-ups: a token by its id (TOKEN), by the hash of its secret (index `digest`), and by the time of its end (`ends`).
TOKEN_HEAD is one row: its version tells a node whether it has read the latest change, and `created` says for ever that
the store has had a token, also when all of them were revoked and deleted.
"""

from __future__ import annotations

from typing import NamedTuple

from semel.store.protocol import Range
from semel.store.table import Table

NEVER = 2**63 - 1
"""The end of a token that does not end."""
TOPIC = b"auth:tokens"
"""The topic that is signalled after each change of a token."""


class TokenRow(NamedTuple):
    """One stored token."""

    id: bytes
    """16 hex digits, by which people name it."""
    digest: bytes
    """The SHA-256 of the token."""
    name: bytes
    roles: bytes
    """The names of the roles in order, separated by commas."""
    scopes: bytes | None
    """The scopes as a JSON list of texts; None for all."""
    created_at: int
    expires_at: int | None
    """The end that was asked for when it was created; None without one."""
    ends_at: int
    """The end in force: its expiry, the end of an overlap or its revocation, whichever is first; `NEVER` without."""
    revoked_at: int | None
    successor: bytes | None
    """The id of the token that replaces it; None if it was not rotated."""
    checksum: int = 0


class TokenHeadRow(NamedTuple):
    """What is known of all stored tokens."""

    name: bytes
    version: int
    """Rises with each change that callers notice."""
    created: int
    """Tokens that were ever created."""
    stored: int
    """Rows of TOKEN."""
    checksum: int = 0


TOKEN = Table("auth_token", TokenRow, key=1, indexes={"digest": ("digest",), "ends": ("ends_at",)})
TOKEN_HEAD = Table("auth_token_head", TokenHeadRow, key=1)
TABLES = (TOKEN, TOKEN_HEAD)
HEAD_KEY = (b"",)
FIRST_HEAD = TokenHeadRow(b"", 0, 0, 0)


def of_digest(digest: bytes) -> Range:
    """The token with this hash."""
    return Range(TOKEN, "digest", (digest,), 1)


def ended_before(ms: int, limit: int) -> Range:
    """Tokens that ended before a time, the earliest first."""
    return Range(TOKEN, "ends", (), limit, stop=(ms,))
