"""One call of `once.transaction`: whether it is the first, and the result of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any


class Attempt:
    """What a block is handed.

    In a fresh attempt the block does its work and sets `result`; in one that is replayed `result` is that of the first.
    """

    __slots__ = ("_created_ms", "_previous_ms", "fresh", "key", "result", "scope")

    def __init__(
        self,
        key: str,
        scope: str,
        fresh: bool = False,
        result: Any = None,
        created_ms: int = 0,
        previous_ms: int | None = None,
    ) -> None:
        self.key = key
        self.scope = scope
        self.fresh = fresh
        """Whether this is the first call with the key: do the work."""
        self.result = result
        """Set it in a fresh attempt; in a replayed one it is what the first call set."""
        self._created_ms = created_ms
        self._previous_ms = previous_ms

    @property
    def replayed(self) -> bool:
        """Whether the work was done by an earlier call: do nothing."""
        return not self.fresh

    @property
    def created_at(self) -> datetime:
        """When the receipt was made."""
        return datetime.fromtimestamp(self._created_ms / 1_000, UTC)

    @property
    def expired_before(self) -> datetime | None:
        """When an earlier call with this key was made whose receipt has expired; None for a key that is new."""
        return None if self._previous_ms is None else datetime.fromtimestamp(self._previous_ms / 1_000, UTC)

    def __repr__(self) -> str:
        return f"Attempt(key={self.key!r}, scope={self.scope!r}, fresh={self.fresh}, result={self.result!r})"
