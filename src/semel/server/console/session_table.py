"""The rows of one-time links and of the console sessions that they become: hashes and times, never a code or a token.

A link and its session are one row: the exchange puts the hash of the session's token in the place of the hash of the
code, so a code that was exchanged is found no more. Look-ups: by the id, by the hash (index `digest`), the rows of one
principal from the oldest on (`actor`), and by the time of the end (`ends`). CONSOLE_HEAD is one row: its version tells
a node whether it has read the latest change of a session.
"""

from __future__ import annotations

from typing import NamedTuple

from semel.store.protocol import Range
from semel.store.table import Table

TOPIC = b"console:sessions"
"""The topic that is signalled after each change of a session."""
LATEST = 2**63 - 1


class ConsoleSessionRow(NamedTuple):
    """A link that was not used yet, or the session that it has become."""

    id: bytes
    """16 hex digits, by which audit lines name it."""
    digest: bytes
    """The SHA-256 of the code; from the exchange on, that of the session's token."""
    actor: bytes
    """The caller who asked for the link."""
    credential: bytes
    """The SHA-256 of the credential behind it."""
    rights: bytes
    """The SHA-256 of name, kind, roles, scopes and claims of the caller: with others the session is over."""
    claims: bytes | None
    """The claims of a JWT, from which every node makes the same caller; None for a token."""
    signing_key: bytes | None
    """The SHA-256 of the key that signed the JWT; None for a token."""
    expires_at: int | None
    """When the credential expires; None if it does not."""
    created_at: int
    opened_at: int | None
    """When the code was exchanged; None for a link."""
    ends_at: int
    """The end of the link, then that of the session."""
    checksum: int = 0


class ConsoleHeadRow(NamedTuple):
    """What is known of all links and sessions."""

    name: bytes
    version: int
    """Rises with each session that begins or ends."""
    stored: int
    """Rows of CONSOLE_SESSION."""
    checksum: int = 0


CONSOLE_SESSION = Table(
    "console_session",
    ConsoleSessionRow,
    key=1,
    indexes={"digest": ("digest",), "actor": ("actor", "created_at"), "ends": ("ends_at",)},
)
CONSOLE_HEAD = Table("console_session_head", ConsoleHeadRow, key=1)
TABLES = (CONSOLE_SESSION, CONSOLE_HEAD)
HEAD_KEY = (b"",)
FIRST_HEAD = ConsoleHeadRow(b"", 0, 0)


def of_digest(digest: bytes) -> Range:
    """The link or session with this hash."""
    return Range(CONSOLE_SESSION, "digest", (digest,), 1)


def of_actor(actor: bytes, limit: int) -> Range:
    """Links and sessions of one principal, the oldest first."""
    return Range(CONSOLE_SESSION, "actor", (actor,), limit)


def ended_before(ms: int, limit: int) -> Range:
    """Links and sessions that end before a time, the earliest first."""
    return Range(CONSOLE_SESSION, "ends", (), limit, stop=(ms,))
