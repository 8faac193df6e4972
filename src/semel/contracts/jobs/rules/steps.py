"""Steps of a job: the first stored result of a step is returned to every later attempt."""

from __future__ import annotations

from collections.abc import Generator

from semel.contracts.jobs.commands import Refusal, Step, Stepped
from semel.contracts.jobs.ids import job_name
from semel.contracts.jobs.limits import MAX_STEPS
from semel.contracts.jobs.rules.reap import confirmed
from semel.contracts.jobs.rules.report import NO_JOB, fenced, secret_of
from semel.contracts.jobs.rules.tokens import is_current
from semel.contracts.jobs.tables import ALONE, JOB, JOB_SEAL, JOB_STEP, LEASED, JobStepRow
from semel.engine.contract import Outcome, Stage, View
from semel.kernel.clock import Now


def step_needs(command: Step) -> Generator[Stage, View, None]:
    """The job, the secret of its token, and the step."""
    yield Stage(keys=[(JOB, (command.id,)), (JOB_SEAL, ALONE), (JOB_STEP, (command.id, command.key))])


def step(view: View, command: Step, now: Now) -> Outcome:
    """Give the stored result, or store this one. It makes an offer a lease."""
    job = view.get(JOB, (command.id,))
    if job is None:
        return Outcome(NO_JOB)
    secret = secret_of(view)
    if job.phase != LEASED or not is_current(secret, job, command.token):
        return Outcome(fenced(secret, job, command.token))
    if job.offered:
        job = confirmed(job, now)
        view.put(JOB, job)
    known = view.get(JOB_STEP, (command.id, command.key))
    if known is not None:
        return Outcome(Stepped(known.result, dedup=command.result is not None))
    if command.result is None:
        return Outcome(Stepped(None, dedup=False))
    if job.steps >= MAX_STEPS:
        message = f"A job may have at most {MAX_STEPS} steps."
        return Outcome(Refusal("jobs:too_large", message, {"job_id": job_name(job.id)}))
    view.insert(JOB_STEP, JobStepRow(command.id, command.key, command.result))
    view.put(JOB, job._replace(steps=job.steps + 1))
    return Outcome(Stepped(command.result, dedup=False))
