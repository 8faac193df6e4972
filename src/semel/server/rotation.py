"""Token rotation: the configured token and its successor; which are valid depends on clock and settings alone.

Before the rotation time both tokens are valid, from it on only the successor; without a time both are valid. Nothing is
stored and no restart is needed, so all nodes agree, also one that was down at that time. Tokens are kept and compared
as hashes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from hmac import compare_digest

from semel.kernel.utc import utc_ms


class Standing(Enum):
    """The status of a presented token in the rotation."""

    ACTIVE = "active"
    NEXT = "next"
    RETIRED = "retired"
    """The active one, after the instant: as good as a wrong one."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Rotation:
    """Hashes of the active token and its successor, if any, and the time at which the first expires."""

    active: bytes
    following: bytes | None = None
    until_ms: int | None = None

    def is_over(self, now_ms: int) -> bool:
        """Whether only the next token holds."""
        return self.until_ms is not None and now_ms >= self.until_ms

    def standing(self, digest: bytes, now_ms: int) -> Standing:
        """The status of a token with this hash at this time."""
        if self.following is not None and compare_digest(digest, self.following):
            # A successor that is the token itself rotates nothing: it is the active one until the end.
            return Standing.NEXT if self.is_over(now_ms) or self.following != self.active else Standing.ACTIVE
        if compare_digest(digest, self.active):
            return Standing.RETIRED if self.is_over(now_ms) else Standing.ACTIVE
        return Standing.UNKNOWN


def rotation_of(active: str, following: str, until: str) -> Rotation | None:
    """The rotation that the settings describe; None without a token."""
    if not active:
        return None
    return Rotation(
        sha256(active.encode()).digest(),
        sha256(following.encode()).digest() if following else None,
        utc_ms(until) if until else None,
    )
