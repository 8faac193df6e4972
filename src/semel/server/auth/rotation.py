"""Token rotation: the configured token and its successor; the clock and the settings alone say which are valid.

Before the rotation time both tokens are valid, from then on only the successor; without a rotation time both are valid.
Nothing is stored and no restart is needed, so all nodes agree, even one that was down at that time. Tokens are kept and
compared as hashes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from hmac import compare_digest

from semel.kernel.clock import utc_ms


class TokenStanding(Enum):
    """The status of a presented token in the rotation."""

    ACTIVE = "active"
    NEXT = "next"
    RETIRED = "retired"
    """The active token after the rotation time; it is refused like a wrong token."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Rotation:
    """Hashes of the active token and its successor, if any, and the time at which the active one expires."""

    active: bytes
    following: bytes | None = None
    until_ms: int | None = None

    def is_over(self, now_ms: int) -> bool:
        """Whether only the successor is valid."""
        return self.until_ms is not None and now_ms >= self.until_ms

    def standing(self, digest: bytes, now_ms: int) -> TokenStanding:
        """The status of a token with this hash at this time."""
        if self.following is not None and compare_digest(digest, self.following):
            # A successor equal to the token itself rotates nothing: the token stays active.
            return TokenStanding.NEXT if self.is_over(now_ms) or self.following != self.active else TokenStanding.ACTIVE
        if compare_digest(digest, self.active):
            return TokenStanding.RETIRED if self.is_over(now_ms) else TokenStanding.ACTIVE
        return TokenStanding.UNKNOWN


def rotation_of(active: str, following: str, until: str) -> Rotation | None:
    """The rotation that the settings describe; None without a token."""
    if not active:
        return None
    return Rotation(
        sha256(active.encode()).digest(),
        sha256(following.encode()).digest() if following else None,
        utc_ms(until) if until else None,
    )
