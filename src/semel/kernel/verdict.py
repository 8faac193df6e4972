"""Verdicts: the decision of the rules about a write before it runs.

A receipt is the durable memory of a write that took effect. A retry is judged against the receipt of its identity, and
only three things can be said of it: nothing is remembered, the same request is remembered, or another one is.
Whether a receipt still counts is decided here by comparing its stored instant with the decision's time; freeing its
space is the sweeper's business and changes no verdict.
"""

from __future__ import annotations

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
