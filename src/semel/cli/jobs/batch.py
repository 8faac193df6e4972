"""Batches of jobs from lines, retried with the same keys until each job is answered, so that none is queued twice.

A server decides each job of a batch separately. Jobs that it had no room for are retried after its `Retry-After`, as
long as some are accepted.

A line without a key gets one made of a base key and the line's number. A second run with the same base queues the
missing jobs and duplicates none, as long as the server keeps keys (by default one day after the job's end). A line that
has changed is refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple

import click

from semel.cli.connection import CliRefusedError, RequestError, not_semel, refused
from semel.cli.jobs.options import CliJobDraft, CliJobDraftError
from semel.cli.jobs.requests import PATH, SURFACE, CliJobServer, Facts
from semel.cli.output import progress
from semel.cli.requests import line_key, pause_seconds
from semel.cli.source import line_groups, size_of

BATCH_PATH = f"{PATH}/batch"


class CliJobVerdict(NamedTuple):
    """The server's result for one job."""

    facts: Facts
    """The server's own result."""
    refusal: CliRefusedError | None
    """Why the job was refused, or None."""

    @property
    def is_new(self) -> bool:
        """Whether this submission created the job."""
        return self.refusal is None and self.facts.get("dedup") is False


class CliJobBatch:
    """Submits drafts, and reports a delay once."""

    def __init__(self, server: CliJobServer) -> None:
        self._server = server
        self._has_told = False

    def submit(self, drafts: Sequence[CliJobDraft]) -> Iterator[tuple[int, CliJobVerdict]]:
        """Yield verdicts as they arrive, each with its draft's index. Raises RequestError after the last retry."""
        waiting = list(range(len(drafts)))
        fruitless = 0
        while waiting:
            verdicts = self._send([drafts[place] for place in waiting])
            passing: list[tuple[int, CliRefusedError]] = []
            for place, verdict in zip(waiting, verdicts, strict=True):
                if verdict.refusal is not None and _may_repeat(drafts[place], verdict.refusal):
                    passing.append((place, verdict.refusal))
                else:
                    yield place, verdict
            if passing:
                fruitless = 0 if len(passing) < len(waiting) else fruitless + 1
                self._pause([refusal for _, refusal in passing], fruitless)
            waiting = [place for place, _ in passing]

    def _pause(self, refusals: list[CliRefusedError], fruitless: int) -> None:
        if fruitless > self._server.retries:
            raise refusals[0]
        if not self._has_told:
            click.echo(f"{refusals[0].message} Trying again.", err=True)
            self._has_told = True
        time.sleep(pause_seconds(fruitless, max(refusal.wait_seconds for refusal in refusals)))

    def _send(self, drafts: list[CliJobDraft]) -> list[CliJobVerdict]:
        body = b'{"jobs":[%s]}' % b",".join(draft.text for draft in drafts)
        is_safe = all(draft.key is not None for draft in drafts)
        jobs = self._server.post(BATCH_PATH, body, has_identity=is_safe).get("jobs")
        if not isinstance(jobs, list) or len(jobs) != len(drafts):
            raise not_semel(self._server.connection.address, SURFACE)
        return [self._verdict(job) for job in jobs]

    def _verdict(self, facts: object) -> CliJobVerdict:
        address = self._server.connection.address
        if not isinstance(facts, dict) or not isinstance(facts.get("http"), int):
            raise not_semel(address, SURFACE)
        status = facts["http"]
        if 200 <= status < 300:
            return CliJobVerdict(facts, None)
        asked_ms = facts.get("retry_after_ms")
        wait_seconds = asked_ms / 1_000 if isinstance(asked_ms, int | float) else 0.0
        return CliJobVerdict(facts, refused(address, status, facts, wait_seconds))


def _may_repeat(draft: CliJobDraft, refusal: CliRefusedError) -> bool:
    """Whether the request may be retried: not if a job without a key may have been queued."""
    return refusal.may_pass and (draft.key is not None or not refusal.is_unsettled)


BATCH_ITEMS = 100
BATCH_BYTES = 512 * 1024
"""Well below the server's limit of a request, unless one line is larger."""


class CliJobPlan(NamedTuple):
    """How lines become jobs: `draft` converts a line and its generated key, if keys are generated."""

    draft: Callable[[bytes, str | None], CliJobDraft]
    base: str | None
    is_base_fresh: bool
    """Whether the base key is new, so that no earlier run used it."""
    batch_items: int
    tell: Callable[[int, CliJobDraft, CliJobVerdict], None]


class _JobLine(NamedTuple):
    number: int
    size: int
    draft: CliJobDraft


class CliJobImport:
    """Reads lines, submits them, and passes each verdict with its line number to the plan."""

    def __init__(self, server: CliJobServer, plan: CliJobPlan) -> None:
        self._batch = CliJobBatch(server)
        self._plan = plan
        self._waiting: list[_JobLine] = []
        self._read = 0
        self._done = 0
        """All lines up to this one are answered."""
        self._is_keyed = True
        """Whether every line so far has a key."""
        self.makes_keys = False
        self.new = 0
        self.known = 0
        self.refused = 0

    def run(self, source: BinaryIO) -> None:
        """Submit every line in order. A line that cannot be sent ends the import; a refused one does not."""
        with self._resumable(), progress(size_of(source), "Submitting") as advance:
            for lines in line_groups(source):
                for line in lines:
                    self._take(line, advance)
                self._send(advance)

    def _take(self, line: bytes, advance: Callable[[int], None]) -> None:
        self._read += 1
        content = line.strip(b" \t\r\n")
        if not content:
            advance(len(line))
            return
        made = None if self._plan.base is None else line_key(self._plan.base, self._read)
        try:
            draft = self._plan.draft(content, made)
        except CliJobDraftError as error:
            self._send(advance)
            raise click.ClickException(f"Line {self._read}: {error} {self._advice}") from None
        if made is not None and draft.key == made:
            self._tell_base()
        self._is_keyed = self._is_keyed and draft.key is not None
        if self._is_full(draft):
            self._send(advance)
        self._waiting.append(_JobLine(self._read, len(line), draft))

    def _tell_base(self) -> None:
        """Print the base key at the start, because a killed run cannot print it later."""
        if not self.makes_keys and self._plan.is_base_fresh:
            base = self._plan.base
            click.echo(f"Keys: {base}-1, {base}-2, ...; continue an interrupted run with --key {base}.", err=True)
        self.makes_keys = True

    def _is_full(self, draft: CliJobDraft) -> bool:
        size = sum(len(line.draft.text) for line in self._waiting) + len(draft.text)
        return len(self._waiting) >= self._plan.batch_items or (size > BATCH_BYTES and bool(self._waiting))

    def _send(self, advance: Callable[[int], None]) -> None:
        if not self._waiting:
            return
        sent = self._waiting
        left = set(range(len(sent)))
        for place, verdict in self._batch.submit([line.draft for line in sent]):
            line = sent[place]
            left.remove(place)
            self._done = sent[min(left)].number - 1 if left else sent[-1].number
            self._count(verdict)
            self._plan.tell(line.number, line.draft, verdict)
            advance(line.size)
        self._waiting = []

    def _count(self, verdict: CliJobVerdict) -> None:
        if verdict.refusal is not None:
            self.refused += 1
        elif verdict.is_new:
            self.new += 1
        else:
            self.known += 1

    @property
    def _advice(self) -> str:
        if not self._is_keyed:
            return f"Lines up to {self._done} are done; repeating those without a key would queue them twice."
        again = f"run this again with --key {self._plan.base}" if self.makes_keys else "run this again"
        return f"Earlier lines are done: {again}, and no job is queued twice."

    @contextmanager
    def _resumable(self) -> Iterator[None]:
        """Adds advice on how to continue when the import ends early."""
        try:
            yield
        except RequestError as error:
            first, last = self._waiting[0].number, self._waiting[-1].number
            where = f"Line {first}" if first == last else f"Lines {first} to {last}"
            raise click.ClickException(f"{where}: {error.message} {self._advice}") from error
        except KeyboardInterrupt:
            raise click.ClickException(f"Stopped after line {self._done}. {self._advice}") from None
