"""Batch submission: many jobs in one request, with retries of those that the server had no room for."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from semel.client.bodies import Draft, batch
from semel.client.calling import Caller
from semel.client.errors import BadAnswerError, CallError, NoAnswerError, refusal
from semel.client.patience import pause_seconds
from semel.client.values import Submitted

Read = Callable[[Mapping[str, Any], Draft], Submitted]
Answer = Submitted | CallError

_PATH = "/v1/jobs/batch"


async def submit_batch(caller: Caller, drafts: Sequence[Draft], read: Read) -> tuple[list[Answer], CallError | None]:
    """One answer a draft; and the error that ended it, if the server stayed away."""
    answers: dict[int, Answer] = {}
    waiting = list(range(len(drafts)))
    began, tried = time.monotonic(), 0
    while True:
        tried += 1
        sent = [drafts[place] for place in waiting]
        try:
            judged = _judged(await caller.post(_PATH, batch(sent)), sent, read)
        except CallError as error:
            if not error.may_pass:
                raise
            answers |= zip(waiting, unanswered(sent, error, is_unsettled=error.is_unsettled), strict=True)
            return _in_order(answers), error
        answers |= zip(waiting, judged, strict=True)
        passing = {place: one for place in waiting if isinstance(one := answers[place], CallError) and one.may_pass}
        waiting = list(passing)
        asked = max((one.retry_after for one in passing.values()), default=0.0)
        pause = pause_seconds(tried, asked, random.random())  # noqa: S311 - not a secret
        if not waiting or caller.patience.is_over(tried, time.monotonic() - began, pause):
            return _in_order(answers), None
        await asyncio.sleep(pause)


def unanswered(drafts: Sequence[Draft], error: CallError, *, is_unsettled: bool) -> list[Answer]:
    """The error of a whole request as the answer to each of its submissions."""
    answers: list[Answer] = []
    for one in drafts:
        answer = NoAnswerError(str(error), is_unsettled=is_unsettled)
        answer.key = one.key
        answers.append(answer)
    return answers


def _judged(facts: Mapping[str, Any], drafts: Sequence[Draft], read: Read) -> list[Answer]:
    jobs = facts.get("jobs")
    if not isinstance(jobs, list) or len(jobs) != len(drafts) or not all(isinstance(job, dict) for job in jobs):
        raise BadAnswerError("An answer lacks what it should have (jobs).")
    return [_answer(job, sent, read) for job, sent in zip(jobs, drafts, strict=True)]


def _answer(facts: Mapping[str, Any], sent: Draft, read: Read) -> Answer:
    if facts.get("ok") is True:
        return read(facts, sent)
    status = facts.get("http")
    error = refusal(status if isinstance(status, int) else 500, facts)
    error.key = sent.key
    return error


def _in_order(answers: Mapping[int, Answer]) -> list[Answer]:
    return [answers[place] for place in range(len(answers))]
