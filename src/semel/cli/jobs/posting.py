"""Submission of many jobs, with retries under the same keys, so that none is queued twice.

A server judges each job of a batch alone. Those that it had no room for are asked again after the time that it names,
for as long as that brings any of them in.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import click

from semel.cli.failures import RefusedError, not_semel, refused
from semel.cli.jobs.asking import PATH, SURFACE, Facts, Server
from semel.cli.jobs.drafts import Draft
from semel.cli.retries import pause_seconds

BATCH_PATH = f"{PATH}/batch"


class Verdict(NamedTuple):
    """The server's result for one job."""

    facts: Facts
    """As it said it."""
    refusal: RefusedError | None
    """Why there is no such job; None if there is."""

    @property
    def is_new(self) -> bool:
        """Whether this submission made the job."""
        return self.refusal is None and self.facts.get("dedup") is False


class Batch:
    """Submits drafts, and remembers whether the user was told about delays."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._has_told = False

    def submit(self, drafts: Sequence[Draft]) -> Iterator[tuple[int, Verdict]]:
        """The verdicts as they arrive, each with its draft's index; a RequestError when retries are used up."""
        waiting = list(range(len(drafts)))
        fruitless = 0
        while waiting:
            verdicts = self._send([drafts[place] for place in waiting])
            passing: list[tuple[int, RefusedError]] = []
            for place, verdict in zip(waiting, verdicts, strict=True):
                if verdict.refusal is not None and _may_repeat(drafts[place], verdict.refusal):
                    passing.append((place, verdict.refusal))
                else:
                    yield place, verdict
            if passing:
                fruitless = 0 if len(passing) < len(waiting) else fruitless + 1
                self._pause([refusal for _, refusal in passing], fruitless)
            waiting = [place for place, _ in passing]

    def _pause(self, refusals: list[RefusedError], fruitless: int) -> None:
        if fruitless > self._server.retries:
            raise refusals[0]
        if not self._has_told:
            click.echo(f"{refusals[0].message} Trying again.", err=True)
            self._has_told = True
        time.sleep(pause_seconds(fruitless, max(refusal.wait_seconds for refusal in refusals)))

    def _send(self, drafts: list[Draft]) -> list[Verdict]:
        body = b'{"jobs":[%s]}' % b",".join(draft.text for draft in drafts)
        is_safe = all(draft.key is not None for draft in drafts)
        jobs = self._server.post(BATCH_PATH, body, has_identity=is_safe).get("jobs")
        if not isinstance(jobs, list) or len(jobs) != len(drafts):
            raise not_semel(self._server.connection.address, SURFACE)
        return [self._verdict(job) for job in jobs]

    def _verdict(self, facts: object) -> Verdict:
        address = self._server.connection.address
        if not isinstance(facts, dict) or not isinstance(facts.get("http"), int):
            raise not_semel(address, SURFACE)
        status = facts["http"]
        if 200 <= status < 300:
            return Verdict(facts, None)
        asked_ms = facts.get("retry_after_ms")
        wait_seconds = asked_ms / 1_000 if isinstance(asked_ms, int | float) else 0.0
        return Verdict(facts, refused(address, status, facts, wait_seconds))


def _may_repeat(draft: Draft, refusal: RefusedError) -> bool:
    """A job without a key whose fate is not known must not be sent again."""
    return refusal.may_pass and (draft.key is not None or not refusal.is_unsettled)
