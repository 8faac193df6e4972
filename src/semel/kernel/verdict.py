"""The verdict on a write before it runs, and the retention of the receipts that it is judged by.

A receipt is the durable memory of a write that took effect. A retry is judged against the receipt of its identity, with
three possible results: nothing is remembered, the same request is remembered, or another one is. Whether a receipt
still counts is decided here by comparing its stored instant with the decision's time; freeing its space is the
sweeper's business and changes no verdict.

A receipt is forgotten by age, with the thing that it belongs to, or by an operator's named order; never under pressure.
Each retention class gives the first millisecond at which the receipt no longer counts, and that instant is stored with
it: a setting changed later applies only to later writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class Verdict(Enum):
    """The vocabulary of every surface; each contract says which of these it can give."""

    FRESH = "fresh"
    REPLAY = "replay"
    PENDING = "pending"
    MISMATCH = "mismatch"
    GAP = "gap"
    FENCED = "fenced"
    REFUSED = "refused"


class Receipt(Protocol):
    """The common members of every contract's receipt row."""

    @property
    def fingerprint(self) -> bytes:
        """SHA-256 of what makes two requests the same request."""

    @property
    def expires_at(self) -> int:
        """The first millisecond at which this receipt no longer counts."""


def judge(receipt: Receipt | None, fingerprint: bytes, now: int) -> Verdict:
    """Judge a keyed write by the receipt kept under its identity."""
    if receipt is None or now >= receipt.expires_at:
        return Verdict.FRESH
    return Verdict.REPLAY if receipt.fingerprint == fingerprint else Verdict.MISMATCH


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
