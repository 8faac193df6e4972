"""`semel jobs submit`: queue jobs exactly once, with retries.

A line without a key gets one made of a base key and the line's number. A second run with the same base queues the
missing jobs and duplicates none, as long as the server keeps keys (by default one day after the job's end). A line that
has changed is refused.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Annotated, BinaryIO, Literal, NamedTuple

import click

from semel.cli.command import RETRIES, Json, MaybeArg, Opt, Retries, command
from semel.cli.jobs.options import MaxAttempts, Priority, Queue, Timeout, jobs
from semel.cli.jobs.output import answer_sentence
from semel.cli.jobs.read import exit_with
from semel.cli.output import progress, say
from semel.cli.session import sentence
from semel.cli.source import STDIN, line_groups, open_source, read_whole, size_of
from semel.client import CallError, Client, Debounce, JobRequest, Join, RefusedError, SemelError, Submitted, Unique
from semel.client.jobs.submission import BATCH_JOBS, fresh_name
from semel.client.jobs.texts import JobText, JobTextError, job_text, line_text

DISABLED = "The server has idempotency switched off: a retry would create another job."
_SECONDS = click.FloatRange(min=0)

File = Annotated[BinaryIO | None, Opt("File with the params, or with --lines the jobs; - is stdin.")]
NewKey = Annotated[str | None, Opt("Idempotency key; by default a new one, which is printed.")]
NoKey = Annotated[bool, Opt("Submit without a key; a retry then creates another job.")]
Lines = Annotated[bool, Opt("Each line is a job, or params of KIND, with the key KEY-1, KEY-2 ...")]
Batch = Annotated[int, Opt("Maximum lines per request.", type=click.IntRange(1, BATCH_JOBS))]
Wait = Annotated[
    float | None, Opt("Wait at most this time for the end of the job, in seconds.", metavar="SECONDS", type=_SECONDS)
]
Delay = Annotated[float | None, Opt("Delay before the first run, in seconds.", metavar="SECONDS", type=_SECONDS)]
RunAt = Annotated[str | None, Opt("Earliest time of the first run, such as 2030-01-31T12:00:00Z.", metavar="RFC3339")]
Lease = Annotated[
    int | None,
    Opt(
        "End the lease of a worker without a heartbeat for this time, in seconds.",
        metavar="SECONDS",
        type=click.IntRange(1, 86_400),
    ),
]
OnFailed = Annotated[
    Literal["return", "retry"] | None, Opt("If the job of this key has failed: return it as it is, or retry it.")
]
UniqueKey = Annotated[
    str | None, Opt("An earlier job with this unique key that has not ended stands for it.", metavar="KEY")
]
UniqueFor = Annotated[
    float | None,
    Opt(
        "As --unique, for a job submitted in this time that has not failed; the default key is kind and params.",
        metavar="SECONDS",
        type=_SECONDS,
    ),
]
DebounceKey = Annotated[
    str | None, Opt("One job for all submissions with this key; it starts --delay after the last.", metavar="KEY")
]
Group = Annotated[str | None, Opt("Submit a member of the group of this join.", metavar="JOB")]
JoinSize = Annotated[
    int | None,
    Opt(
        "Submit a join, which runs after a group of SIZE members; 0 is a group that `jobs close` closes.",
        metavar="SIZE",
        type=click.IntRange(min=0),
    ),
]


@command(jobs)
def submit(
    client: Client,
    kind: MaybeArg = None,
    params: MaybeArg = None,
    file: File = None,
    key: NewKey = None,
    no_key: NoKey = False,
    lines: Lines = False,
    batch: Batch = BATCH_JOBS,
    wait: Wait = None,
    queue: Queue = None,
    priority: Priority = None,
    max_attempts: MaxAttempts = None,
    delay: Delay = None,
    run_at: RunAt = None,
    lease: Lease = None,
    timeout: Timeout = None,
    on_failed: OnFailed = None,
    unique: UniqueKey = None,
    unique_for: UniqueFor = None,
    debounce: DebounceKey = None,
    group: Group = None,
    join: JoinSize = None,
    retries: Retries = RETRIES,
    as_json: Json = False,
) -> None:
    """Queue a job of a KIND, exactly once. PARAMS is a JSON object, or - for standard input.

    After a lost connection or a busy server the request is retried with the same key, which the server queues at most
    once. With --lines a line holds the params, or without KIND a whole job: {"kind", "params", "idempotency_key", ...}.
    Run an interrupted import again with the same --key to continue where it stopped.
    """
    if key is not None and no_key:
        raise click.UsageError("Give --key or --no-key, not both.")
    if debounce is not None and delay is None:
        raise click.UsageError("--debounce needs --delay: the time after the last submission.")
    source = _source(kind, params, file, lines, wait)
    job = JobRequest(
        kind or "",
        queue=queue,
        priority=priority,
        delay=delay if debounce is None else None,
        run_at=_start(delay, run_at),
        max_attempts=max_attempts,
        lease=lease,
        timeout=timeout,
        on_failed=on_failed,
        unique=None if unique is None and unique_for is None else Unique(unique, unique_for),
        debounce=None if debounce is None else Debounce(debounce, delay or 0.0),
        join=None if join is None else Join(join or None),
        group=group,
    )
    used = None if no_key else fresh_name() if key is None else key
    if not lines:
        draft = job_text(job, b"{}" if source is None else read_whole(source), used)
        _submit_one(client, draft, wait, as_json)
        return
    plan = _JobPlan(job, used, key is None, batch, as_json)
    _report_lines(_JobImport(client, plan).run(source or sys.stdin.buffer), plan)


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


def _start(delay: float | None, run_at: str | None) -> datetime | None:
    if delay is not None and run_at is not None:
        raise click.UsageError("Give --delay or --run-at, not both.")
    if run_at is None:
        return None
    with suppress(ValueError):
        found = datetime.fromisoformat(run_at)
        if found.tzinfo is not None:
            return found
    raise click.UsageError("--run-at must be a time with its zone, such as 2030-01-31T12:00:00Z.")


def _submit_one(client: Client, draft: JobText, wait: float | None, as_json: bool) -> None:
    key = draft.key
    try:
        done = client.jobs.submit_text(draft)
    except CallError as error:
        if not error.is_unsettled:
            raise
        advice = "It may be queued: without a key it was not retried. Check with `semel jobs list`."
        if key is not None:
            advice = f"It may be queued: run this again with --key {key} to queue it exactly once."
        raise click.ClickException(f"{sentence(error)} {advice}") from error
    if done.facts.get("idempotency") == "disabled":
        click.echo(DISABLED, err=True)
    if wait is None or not as_json:
        say(as_json, {"idempotency_key": key, **done.facts}, answer_sentence(done.facts, key))
    if wait is not None:
        job = client.jobs.wait(done.job_id, wait)
        exit_with({"idempotency_key": key, "dedup": done.dedup, **job.facts}, as_json)


class _JobPlan(NamedTuple):
    """How lines become jobs; without a kind each line is a whole job."""

    job: JobRequest
    base: str | None
    is_base_fresh: bool
    """Whether the base key is new, so that no earlier run used it."""
    batch_lines: int
    as_json: bool

    def draft(self, raw: bytes, key: str | None) -> JobText:
        """The job of a line."""
        return job_text(self.job, raw, key) if self.job.kind else line_text(raw, self.job, key)


class _JobLine(NamedTuple):
    number: int
    size: int
    draft: JobText


class _JobImport:
    """Reads lines, submits them in batches as they arrive, and prints each answer."""

    def __init__(self, client: Client, plan: _JobPlan) -> None:
        self._client = client
        self._plan = plan
        self._waiting: list[_JobLine] = []
        self._read = 0
        self._done = 0
        """All lines up to this one are answered."""
        self._is_keyed = True
        """Whether every line so far has a key."""
        self.makes_keys = False
        self.new = self.known = self.refused = 0

    def run(self, source: BinaryIO) -> _JobImport:
        """Submit every line in order. A line that cannot be sent ends the import; a refused one does not."""
        with self._resumable(), progress(size_of(source), "Submitting") as advance:
            for lines in line_groups(source):
                for line in lines:
                    self._take(line, advance)
                self._send(advance)
        return self

    def _take(self, line: bytes, advance: Callable[[int], None]) -> None:
        self._read += 1
        content = line.strip(b" \t\r\n")
        if not content:
            advance(len(line))
            return
        made = None if self._plan.base is None else f"{self._plan.base}-{self._read}"
        try:
            draft = self._plan.draft(content, made)
        except JobTextError as error:
            self._send(advance)
            raise click.ClickException(f"Line {self._read}: {error} {self._advice}") from None
        if made is not None and draft.key == made:
            self._tell_base()
        self._is_keyed = self._is_keyed and draft.key is not None
        self._waiting.append(_JobLine(self._read, len(line), draft))
        if len(self._waiting) == self._plan.batch_lines:
            self._send(advance)

    def _tell_base(self) -> None:
        """Print the base key at the start, because a killed run cannot print it later."""
        if not self.makes_keys and self._plan.is_base_fresh:
            base = self._plan.base
            click.echo(f"Keys: {base}-1, {base}-2, ...; continue an interrupted run with --key {base}.", err=True)
        self.makes_keys = True

    def _send(self, advance: Callable[[int], None]) -> None:
        stopped: CallError | None = None
        answers = self._client.jobs.submit_texts(line.draft for line in self._waiting)
        for line, answer in zip(self._waiting, answers, strict=True):
            if isinstance(answer, CallError) and answer.may_pass and not self._is_final(line, answer):
                stopped = stopped or answer
                continue
            self._done = line.number if stopped is None else self._done
            self._tell(line, answer)
            advance(line.size)
        if stopped is not None:
            raise stopped
        self._waiting = []

    @staticmethod
    def _is_final(line: _JobLine, answer: CallError) -> bool:
        """Whether the server refused a line that may not be sent again: without a key it may have been queued."""
        return line.draft.key is None and isinstance(answer, RefusedError)

    def _tell(self, line: _JobLine, answer: Submitted | CallError) -> None:
        if isinstance(answer, CallError):
            self.refused += 1
            facts = getattr(answer, "facts", {})
        else:
            self.new += not answer.dedup
            self.known += answer.dedup
            facts = answer.facts
        if self._plan.as_json:
            click.echo(json.dumps({"line": line.number, "idempotency_key": line.draft.key, **facts}))
        elif isinstance(answer, CallError):
            click.echo(f"Line {line.number}: {sentence(answer)}", err=True)

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
        except SemelError as error:
            first, last = self._waiting[0].number, self._waiting[-1].number
            where = f"Line {first}" if first == last else f"Lines {first} to {last}"
            raise click.ClickException(f"{where}: {sentence(error)} {self._advice}") from error
        except KeyboardInterrupt:
            raise click.ClickException(f"Stopped after line {self._done}. {self._advice}") from None


def _report_lines(done: _JobImport, plan: _JobPlan) -> None:
    count = done.new + done.known
    if not plan.as_json:
        again = f" (--key {plan.base})" if done.makes_keys else ""
        click.echo(f"Submitted {count} jobs: {done.new} new, {done.known} already there{again}")
    if done.refused:
        raise click.ClickException(f"{done.refused} of {count + done.refused} jobs were refused.")
