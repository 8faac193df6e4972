"""Capacity limits: queued and scheduled jobs in all, of one caller, and of one queue (back pressure).

Queued jobs and scheduled ones are counted apart, so that scheduled jobs do not block the work of today. A scheduled job
that becomes ready was admitted before and is never refused; it counts as queued from then on.

No caller can use up the room of others. While others have jobs it may use its share of a global limit and no more; and
what it took beyond its share while it was alone does not count against the others. So the number of jobs may exceed the
limit, by what one caller holds beyond its share.
"""

from __future__ import annotations

from typing import NamedTuple

from semel.contracts.jobs.commands import Note, Refusal
from semel.contracts.jobs.rules.tally import Tally
from semel.contracts.jobs.tables import JOB_SHARE
from semel.store.protocol import Range

_FULL = "The queue is full. Nothing was stored; send the same request again in a moment, with the same key."


class _Bound(NamedTuple):
    """A limit that was reached: its name, the present number, and the limit."""

    name: str
    held: int
    most: int


def refused(tally: Tally, principal: bytes, queue: bytes, *, is_scheduled: bool) -> Refusal | None:
    """The answer to a job that there is no room for; None when there is room."""
    bound = _met(tally, principal, queue, "scheduled" if is_scheduled else "queued")
    if bound is None:
        return None
    facts = {"queue_depth": bound.held, "max": bound.most, "bound": bound.name}
    note = Note("BACKPRESSURE_DROP", facts)
    return Refusal("jobs:backpressure", _FULL, {**facts, "retry_after_ms": 1_000}, (note,))


def _met(tally: Tally, principal: bytes, queue: bytes, state: str) -> _Bound | None:
    """The first bound that leaves no room for one more job in this state."""
    bounds = tally.policy.scheduled if state == "scheduled" else tally.policy.queued
    total: int = getattr(tally.totals, state)
    mine: int = getattr(tally.share(principal), state)
    there: int = getattr(tally.queue(queue), state)
    if bounds.each_principal and mine >= bounds.each_principal:
        return _Bound(f"{state}_per_principal", mine, bounds.each_principal)
    if bounds.each_queue and there >= bounds.each_queue:
        return _Bound(f"{state}_per_queue", there, bounds.each_queue)
    if not bounds.all:
        return None
    fair = max(1, int(bounds.all * tally.policy.principal_share))
    if total > mine >= fair:
        return _Bound(f"{state}_share", mine, fair)
    if total >= bounds.all and total - _excess(tally, principal, state, fair) >= bounds.all:
        return _Bound(state, total, bounds.all)
    return None


def _excess(tally: Tally, principal: bytes, state: str, fair: int) -> int:
    """The jobs that the largest of the other callers holds beyond its share."""
    if tally.policy.principal_share >= 1:
        return 0
    largest = tally.view.range(Range(JOB_SHARE, state, (), 2, reverse=True))
    held = [getattr(row, state) for row in largest if row.principal != principal]
    return max(0, held[0] - fair) if held else 0
