"""What traces tell of streams: the fixed words of its paths, and the verdict that an answer tells."""

from __future__ import annotations

from typing import Any

from semel.kernel.errors import Refusal
from semel.kernel.verdict import REFUSED_AS, Verdict, told_verdict
from semel.surfaces.streams.commands import Appended, Created, Deleted

ROUTE_WORDS = frozenset(b"v1 stream streams producers __ds subscriptions callback claim ack release jwks.json".split())
"""Segments of paths that are no names; a trace has `{}` in place of any other."""


def verdict_of(answer: Any) -> Verdict | None:
    """The verdict; None if the answer is not to a write of a client."""
    if isinstance(answer, Created | Appended):
        return told_verdict(answer.is_new)
    if isinstance(answer, Refusal):
        return REFUSED_AS.get(answer.code, Verdict.REFUSED)
    return Verdict.FRESH if isinstance(answer, Deleted) else None
