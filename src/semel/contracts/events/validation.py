"""Validation by the application: a pure callable that may reject an event before it is committed.

It is called after the duplicate check, so the retry of a committed event gets its recorded answer whatever the rules
say by now. It may be called twice for one item, does no I/O, and an exception in it is a fault of the server, never a
rejection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple


class Candidate(NamedTuple):
    """An event before its commit."""

    id: str
    partitions: tuple[str, ...]
    event: Any
    client_id: str


Complaint = tuple[str, str]
"""A dot path inside the item, and a sentence that says what is wrong there."""

Validator = Callable[[Candidate, Sequence[Candidate]], Iterable[Complaint] | None]
"""Told the candidate and those of the same request that were accepted before it; says what is wrong, or nothing."""
