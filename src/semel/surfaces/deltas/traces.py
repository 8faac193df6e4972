"""What traces tell of deltas: the fixed words of its paths, and the verdict that an answer tells."""

from __future__ import annotations

from typing import Any

from semel.kernel.errors import Refusal
from semel.kernel.verdict import Verdict, told_verdict
from semel.surfaces.deltas.commands import DeltasPushed

ROUTE_WORDS = frozenset(
    b"v1 sync admin connectors push pull checkpoint actions ws schema sync-rules flush metrics clients forget-clients "
    b"gateways types".split()
)
"""Segments of paths that are no names; a trace has `{}` in place of any other."""


def verdict_of(answer: Any) -> Verdict | None:
    """The verdict on a push: fresh if any delta is new."""
    if isinstance(answer, DeltasPushed):
        return told_verdict(answer.accepted > answer.duplicates)
    return Verdict.REFUSED if isinstance(answer, Refusal) else None
