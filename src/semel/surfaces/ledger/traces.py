"""What traces tell of the ledger: the fixed words of its paths, and the verdict that an answer tells."""

from __future__ import annotations

from typing import Any

from semel.kernel.errors import Refusal
from semel.kernel.verdict import Verdict, told_verdict
from semel.surfaces.ledger.commands import CreatedPlace, WriteCommitted, WriteDeclined, WriteErrorCode, WriteReplayed

ROUTE_WORDS = frozenset(
    b"ledger v1 orgs vaults writes batches writes:bulk clients state entities entities:batchRead relationships "
    b"resources tip blocks blocks:watch proof transactions".split()
)
"""Segments of paths that are no names; a trace has `{}` in place of any other."""
_DECLINED = {
    WriteErrorCode.IDEMPOTENCY_KEY_REUSED: Verdict.MISMATCH,
    WriteErrorCode.SEQUENCE_GAP: Verdict.GAP,
    WriteErrorCode.ALREADY_COMMITTED: Verdict.REPLAY,
}


def verdict_of(answer: Any) -> Verdict | None:
    """The verdict on a transaction, or on a new organization or vault."""
    if isinstance(answer, WriteCommitted):
        return Verdict.FRESH
    if isinstance(answer, WriteReplayed):
        return Verdict.REPLAY
    if isinstance(answer, WriteDeclined):
        return _DECLINED.get(answer.code, Verdict.REFUSED)
    if isinstance(answer, CreatedPlace):
        return told_verdict(not answer.is_replay)
    return Verdict.REFUSED if isinstance(answer, Refusal) else None
