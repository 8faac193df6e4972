"""`semel jobs submit`: queue jobs exactly once, with retries.

A line without a key gets one made of a base key and the line's number. A second run with the same base queues the
missing jobs and duplicates none, as long as the server keeps keys (by default one day after the job's end). A line that
has changed is refused.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, BinaryIO, Literal

import click

from semel.cli.command import SECONDS, Json, MaybeArg, Opt, OptionSet, Retrying, command
from semel.cli.jobs.options import MaxAttempts, Priority, Queue, Timeout, jobs
from semel.cli.jobs.output import answer_sentence
from semel.cli.jobs.read import exit_with
from semel.cli.lines import CliLineImport
from semel.cli.output import Said
from semel.cli.session import advised
from semel.cli.source import STDIN, open_source, read_whole
from semel.client import CallError, Client, Debounce, JobRequest, Join, RefusedError, Submitted, Unique
from semel.client.imported_lines import ImportedLine
from semel.client.jobs.submission import BATCH_JOBS, fresh_name
from semel.client.jobs.texts import JobText, job_text, line_text

DISABLED = "The server has idempotency switched off: a retry would create another job."
_LEASE = click.IntRange(1, 86_400)
_SAME = ("queue", "priority", "max_attempts", "lease", "timeout", "on_failed", "group")
"""Options that have the names and values of the client's arguments."""
UNIQUE_HELP = "As --unique, for a job submitted in this time that has not failed; the default key is kind and params."
JOIN_HELP = "Submit a join, which runs after a group of SIZE members; 0 is a group that `jobs close` closes."


@dataclass(frozen=True)
class SubmitOptions(OptionSet):
    """The job apart from its kind, its params and its key."""

    queue: Queue = None
    priority: Priority = None
    max_attempts: MaxAttempts = None
    delay: Annotated[float | None, Opt("Delay before the first run, in seconds.", "", "SECONDS", SECONDS)] = None
    run_at: Annotated[
        str | None, Opt("Earliest time of the first run, such as 2030-01-31T12:00:00Z.", "", "RFC3339")
    ] = None
    lease: Annotated[
        int | None,
        Opt("End the lease of a worker without a heartbeat for this time, in seconds.", "", "SECONDS", _LEASE),
    ] = None
    timeout: Timeout = None
    on_failed: Annotated[
        Literal["return", "retry"] | None, Opt("If the job of this key has failed: return it as it is, or retry it.")
    ] = None
    unique: Annotated[
        str | None, Opt("An earlier job with this unique key that has not ended stands for it.", "", "KEY")
    ] = None
    unique_for: Annotated[float | None, Opt(UNIQUE_HELP, "", "SECONDS", SECONDS)] = None
    debounce: Annotated[
        str | None, Opt("One job for all submissions with this key; it starts --delay after the last.", "", "KEY")
    ] = None
    group: Annotated[str | None, Opt("Submit a member of the group of this join.", "", "JOB")] = None
    join: Annotated[int | None, Opt(JOIN_HELP, "", "SIZE", click.IntRange(min=0))] = None

    def request(self, kind: str | None) -> JobRequest:
        """The job; without a kind each line has its own."""
        if self.debounce is not None and self.delay is None:
            raise click.UsageError("--debounce needs --delay: the time after the last submission.")
        same = {name: getattr(self, name) for name in _SAME}
        return JobRequest(
            kind or "",
            **same,
            delay=self.delay if self.debounce is None else None,
            run_at=self._start(),
            unique=None if self.unique is None and self.unique_for is None else Unique(self.unique, self.unique_for),
            debounce=None if self.debounce is None else Debounce(self.debounce, self.delay or 0.0),
            join=None if self.join is None else Join(self.join or None),
        )

    def _start(self) -> datetime | None:
        if self.delay is not None and self.run_at is not None:
            raise click.UsageError("Give --delay or --run-at, not both.")
        if self.run_at is None:
            return None
        with suppress(ValueError):
            found = datetime.fromisoformat(self.run_at)
            if found.tzinfo is not None:
                return found
        raise click.UsageError("--run-at must be a time with its zone, such as 2030-01-31T12:00:00Z.")


@command(jobs)
def submit(
    client: Retrying,
    kind: MaybeArg = None,
    params: MaybeArg = None,
    file: Annotated[BinaryIO | None, Opt("File with the params, or with --lines the jobs; - is stdin.")] = None,
    key: Annotated[str | None, Opt("Idempotency key; by default a new one, which is printed.")] = None,
    no_key: Annotated[bool, Opt("Submit without a key; a retry then creates another job.")] = False,
    lines: Annotated[bool, Opt("Each line is a job, or params of KIND, with the key KEY-1, KEY-2 ...")] = False,
    batch: Annotated[int, Opt("Maximum lines per request.", type=click.IntRange(1, BATCH_JOBS))] = BATCH_JOBS,
    wait: Annotated[
        float | None, Opt("Wait at most this time for the end of the job, in seconds.", "", "SECONDS", SECONDS)
    ] = None,
    *,
    options: SubmitOptions,
    as_json: Json = False,
) -> Said | None:
    """Queue a job of a KIND, exactly once. PARAMS is a JSON object, or - for standard input.

    After a lost connection or a busy server the request is retried with the same key, which the server queues at most
    once. With --lines a line holds the params, or without KIND a whole job: {"kind", "params", "idempotency_key", ...}.
    Run an interrupted import again with the same --key to continue where it stopped.
    """
    if key is not None and no_key:
        raise click.UsageError("Give --key or --no-key, not both.")
    source = _source(kind, params, file, lines, wait)
    job = options.request(kind)
    used = None if no_key else fresh_name() if key is None else key
    if lines:
        _JobImport(client, job, used, key is None, batch, as_json).run(source or sys.stdin.buffer).report()
        return None
    draft = job_text(job, b"{}" if source is None else read_whole(source), used)
    return _submit_one(client, draft, wait, as_json)


def _source(
    kind: str | None, params: str | None, file: BinaryIO | None, lines: bool, wait: float | None
) -> BinaryIO | None:
    if lines and params not in (None, STDIN):
        raise click.UsageError("--lines takes its jobs from standard input or --file, not from PARAMS.")
    if lines and wait is not None:
        raise click.UsageError("Give --wait or --lines, not both: --wait is for one job.")
    if not lines and kind is None:
        raise click.UsageError("Name the KIND of the job; with --lines each line may name its own.")
    return open_source(None if params == STDIN else params, file, from_stdin=params == STDIN)


def _submit_one(client: Client, draft: JobText, wait: float | None, as_json: bool) -> Said | None:
    key = draft.key
    advice = "It may be queued: without a key it was not retried. Check with `semel jobs list`."
    if key is not None:
        advice = f"It may be queued: run this again with --key {key} to queue it exactly once."
    with advised(advice):
        done = client.jobs.submit_text(draft)
    if done.facts.get("idempotency") == "disabled":
        click.echo(DISABLED, err=True)
    said = Said({"idempotency_key": key, **done.facts}, answer_sentence(done.facts, key))
    if wait is None:
        return said
    if not as_json:
        said.show(as_json)
    job = client.jobs.wait(done.job_id, wait)
    exit_with({"idempotency_key": key, "dedup": done.dedup, **job.facts}, as_json)
    return None


class _JobImport(CliLineImport[JobText]):
    def __init__(
        self, client: Client, job: JobRequest, base: str | None, is_base_fresh: bool, batch: int, as_json: bool
    ) -> None:
        super().__init__(base, batch, as_json)
        self._client = client
        self._job = job
        self._is_base_fresh = is_base_fresh
        """Whether the base key is new, so that no earlier run used it."""
        self._is_keyed = True
        """Whether every line so far has a key."""
        self._new = self._known = self._refused = 0

    def draft(self, content: bytes, made: str | None) -> JobText:
        draft = job_text(self._job, content, made) if self._job.kind else line_text(content, self._job, made)
        self._is_keyed = self._is_keyed and draft.key is not None
        if made is not None and draft.key == made and self._is_base_fresh and not self.makes_names:
            # At the start, because a killed run cannot print it later.
            base = self.base
            click.echo(f"Keys: {base}-1, {base}-2, ...; continue an interrupted run with --key {base}.", err=True)
        return draft

    def name(self, draft: JobText) -> str | None:
        return draft.key

    @property
    def advice(self) -> str:
        if not self._is_keyed:
            return f"Lines up to {self.done} are done; repeating those without a key would queue them twice."
        again = f"run this again with --key {self.base}" if self.makes_names else "run this again"
        return f"Earlier lines are done: {again}, and no job is queued twice."

    def send(self) -> None:
        stopped: CallError | None = None
        answers = self._client.jobs.submit_texts(line.draft for line in self.waiting)
        for line, answer in zip(self.waiting, answers, strict=True):
            # A refused line without a key may have been queued, so it is not sent again.
            is_final = line.draft.key is None and isinstance(answer, RefusedError)
            if isinstance(answer, CallError) and answer.may_pass and not is_final:
                stopped = stopped or answer
                continue
            self.done = line.number if stopped is None else self.done
            self._count(line, answer)
        if stopped is not None:
            raise stopped
        self.waiting.clear()

    def _count(self, line: ImportedLine[JobText], answer: Submitted | CallError) -> None:
        refusal = answer if isinstance(answer, CallError) else None
        if isinstance(answer, Submitted):
            self._new += not answer.dedup
            self._known += answer.dedup
        else:
            self._refused += 1
        self.tell(line, {"idempotency_key": line.draft.key, **getattr(answer, "facts", {})}, refusal)

    def report(self) -> None:
        count = self._new + self._known
        if not self.as_json:
            again = f" (--key {self.base})" if self.makes_names else ""
            click.echo(f"Submitted {count} jobs: {self._new} new, {self._known} already there{again}")
        if self._refused:
            raise click.ClickException(f"{self._refused} of {count + self._refused} jobs were refused.")
