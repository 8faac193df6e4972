"""What traces tell of events: the fixed words of its paths, and the verdict that an answer tells."""

from __future__ import annotations

from typing import Any

from semel.kernel.verdict import Verdict, told_verdict
from semel.surfaces.events.commands import EventCommitted, EventSubmitted

ROUTE_WORDS = frozenset(b"v1 events id partitions".split())
"""Segments of paths that are no names; a trace has `{}` in place of any other."""


def verdict_of(answer: Any) -> Verdict | None:
    """The verdict on a submission: refused if any item is, and fresh if any item is new."""
    if not isinstance(answer, EventSubmitted):
        return None
    if not all(isinstance(one, EventCommitted) for one in answer.results):
        return Verdict.REFUSED
    return told_verdict(any(isinstance(one, EventCommitted) and one.is_new for one in answer.results))
