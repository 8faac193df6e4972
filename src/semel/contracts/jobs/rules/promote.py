"""Promotion: scheduled jobs whose time has come are counted as queued.

Nothing waits for it: a job can be claimed from the instant at which it is ready. Only the bounds look at these counts,
and they may let a few more jobs in until this has been done.
"""

from __future__ import annotations

from collections.abc import Generator

from semel.contracts.jobs.commands import Done, Promote
from semel.contracts.jobs.limits import Policy
from semel.contracts.jobs.rules.tally import Tally, counted_keys
from semel.contracts.jobs.tables import AS_SCHEDULED, JOB, NOT_COUNTED, WAITING, JobRow
from semel.engine.contract import Outcome, Stage, View
from semel.kernel.clock import Now
from semel.store.protocol import Range


def to_promote(until: int, most: int) -> tuple[Range, Range]:
    """Jobs that were scheduled and are ready by then, and jobs that were not counted yet."""
    return (
        Range(JOB, "later", (WAITING, AS_SCHEDULED), most, stop=(until + 1,)),
        Range(JOB, "later", (WAITING, NOT_COUNTED), most),
    )


def promote_needs(command: Promote) -> Generator[Stage, View, None]:
    """The jobs; then the counts that they change."""
    ranges = to_promote(command.until, command.most)
    view = yield Stage(ranges=ranges)
    yield Stage(keys=[pair for wanted in ranges for job in view.range(wanted) for pair in counted_keys(job)])


def promote(view: View, command: Promote, policy: Policy, now: Now) -> Outcome:
    """Count them as what they are now."""
    tally = Tally(view, policy, now)
    ready, uncounted = (view.range(wanted) for wanted in to_promote(command.until, command.most))
    jobs: list[JobRow] = [*(job for job in ready if job.ready_at <= tally.now.ms), *uncounted]
    for job in jobs:
        tally.promote(job)
    tally.store()
    return Outcome(Done(len(jobs)))
