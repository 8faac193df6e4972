"""What traces tell of jobs: the fixed words of its paths, and the verdict that an answer tells."""

from __future__ import annotations

from typing import Any

from semel.kernel.verdict import Verdict, told_verdict
from semel.surfaces.jobs.commands import JobAdmitted, JobKeyCollision, JobRefused
from semel.surfaces.jobs.rules.idempotency import RULE

ROUTE_WORDS = frozenset(
    b"mesh submit_request pull_requests results submit submit_result v1 jobs batch claim lookup dead keys release "
    b"queues schedules result cancel requeue close members heartbeat complete fail defer steps".split()
)
"""Segments of paths that are no names; a trace has `{}` in place of any other."""


def verdict_of(answer: Any) -> Verdict | None:
    """The verdict on a submission, or on a batch whose submissions have the same one."""
    if isinstance(answer, JobAdmitted):
        return told_verdict(not RULE[answer.rule].dedup)
    if isinstance(answer, JobKeyCollision):
        return Verdict.MISMATCH
    if isinstance(answer, JobRefused):
        return Verdict.REFUSED
    if type(answer) is tuple and answer:
        verdicts = {verdict_of(one) for one in answer}
        return verdicts.pop() if len(verdicts) == 1 else None
    return None
