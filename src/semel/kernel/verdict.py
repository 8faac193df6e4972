"""The verdict on a write before it runs, and the retention of the receipts by which a write is judged.

A receipt is the durable memory of a write that took effect. A retry is compared with the receipt of its key, with three
possible results: no receipt, a receipt of the same request, or a receipt of another request. A receipt counts until its
stored expiry, compared with the time of the decision; when the sweeper frees its space changes no verdict.

A receipt is deleted by age, with the row that it belongs to, or by an explicit command of an operator; never to free
memory or disk space. Each retention class gives the first millisecond at which the receipt no longer counts, and that
instant is stored with it: a setting changed later applies only to later writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class Verdict(Enum):
    """The verdicts of all surfaces; each contract says which of them it can give."""

    FRESH = "fresh"
    REPLAY = "replay"
    PENDING = "pending"
    MISMATCH = "mismatch"
    GAP = "gap"
    FENCED = "fenced"
    REFUSED = "refused"


class Receipt(Protocol):
    """The members that the receipt rows of all contracts share."""

    @property
    def fingerprint(self) -> bytes:
        """SHA-256 of what makes two requests the same request."""

    @property
    def expires_at(self) -> int:
        """The first millisecond at which this receipt no longer counts."""


def judge(receipt: Receipt | None, fingerprint: bytes, now: int) -> Verdict:
    """Judge a keyed write by the receipt stored under its key."""
    if receipt is None or now >= receipt.expires_at:
        return Verdict.FRESH
    return Verdict.REPLAY if receipt.fingerprint == fingerprint else Verdict.MISMATCH


NEVER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Window:
    """A fixed age from the commit; rows of one table then expire in the order in which they were written."""

    keep_ms: int

    def expires_at(self, committed_at: int) -> int:
        """When the receipt of a write committed at that time expires."""
        return committed_at + self.keep_ms


@dataclass(frozen=True, slots=True)
class PinnedThenWindow:
    """Kept while its job is unfinished, then for a fixed time from the end of the job."""

    keep_ms: int

    def expires_at(self, finished_at: int | None) -> int:
        """When the receipt expires; never while the job is unfinished."""
        return NEVER if finished_at is None else finished_at + self.keep_ms


@dataclass(frozen=True, slots=True)
class FollowsLog:
    """Ended by a later entry of the same log: a function of the log alone, so that a replay drops the same receipts."""

    keep_ms: int

    def is_cut(self, remembered_at: int, entry_at: int) -> bool:
        """Whether the log entry of that time drops the receipt; a receipt of exactly the maximum age still counts."""
        return entry_at - remembered_at > self.keep_ms


@dataclass(frozen=True, slots=True)
class Forever:
    """Kept as long as the row that it belongs to."""

    def expires_at(self) -> int:
        """Never."""
        return NEVER


REFUSED_AS = {"IDEMPOTENCY_MISMATCH": Verdict.MISMATCH, "PRODUCER_GAP": Verdict.GAP, "PRODUCER_FENCED": Verdict.FENCED}
"""Verdicts of refusals by their code; any other is `REFUSED`."""


def told_verdict(is_new: bool) -> Verdict:
    """The verdict on a write that took effect, now or earlier."""
    return Verdict.FRESH if is_new else Verdict.REPLAY
