"""One call of `once.transaction`: whether it is the first, and the result of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(slots=True)
class Attempt:
    """What a block is handed.

    In a fresh attempt the block does its work and sets `result`; in one that is replayed `result` is that of the first.
    """

    key: str
    scope: str
    fresh: bool = False
    """Whether this is the first call with the key: do the work."""
    result: Any = None
    """Set it in a fresh attempt; in a replayed one it is what the first call set."""
    created_at: datetime | None = None
    """When the receipt was made."""
    expired_before: datetime | None = None
    """When an earlier call with this key was made whose receipt has expired; None for a key that is new."""

    @property
    def replayed(self) -> bool:
        """Whether the work was done by an earlier call: do nothing."""
        return not self.fresh
