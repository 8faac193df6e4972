"""Retention of receipts, by class.

A receipt is forgotten by age, with the thing that it belongs to, or by an operator's named order; never under pressure.
Each class gives the first millisecond at which the receipt no longer counts, and that instant is stored with it: a
setting changed later speaks only for later writes.
"""

from __future__ import annotations

from dataclasses import dataclass

NEVER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Window:
    """A fixed age from the commit; rows of one table then expire in the order in which they were written."""

    keep_ms: int

    def expires_at(self, committed_at: int) -> int:
        """The end of the promise for a write committed at that time."""
        return committed_at + self.keep_ms


@dataclass(frozen=True, slots=True)
class PinnedThenWindow:
    """Kept while its work is unfinished, then for a fixed time from its end."""

    keep_ms: int

    def expires_at(self, finished_at: int | None) -> int:
        """The end of the promise; unknown, and so never, while the work goes on."""
        return NEVER if finished_at is None else finished_at + self.keep_ms


@dataclass(frozen=True, slots=True)
class FollowsLog:
    """Cut by later entries of the same log: a function of the log alone, so a replay forgets the same receipts."""

    keep_ms: int

    def is_cut(self, remembered_at: int, entry_at: int) -> bool:
        """Whether the log entry of that time forgets what was remembered; exactly the age still counts."""
        return entry_at - remembered_at > self.keep_ms


@dataclass(frozen=True, slots=True)
class Forever:
    """As long as the thing itself."""

    def expires_at(self) -> int:
        """No end."""
        return NEVER
