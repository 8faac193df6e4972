"""`semel jobs submit`: queue jobs exactly once, with retries."""

from __future__ import annotations

import json
import sys
from typing import BinaryIO, NamedTuple

import click

from semel.cli.connection import CliConnection, RequestError
from semel.cli.jobs.batch import BATCH_ITEMS, CliJobImport, CliJobPlan, CliJobVerdict
from semel.cli.jobs.options import CliJobDraft, CliJobDraftError, draft_job, draft_line, with_job_options
from semel.cli.jobs.output import answer_sentence
from semel.cli.jobs.read import exit_with, wait_for_end
from semel.cli.jobs.requests import PATH, CliJobServer, Facts
from semel.cli.output import say, with_json
from semel.cli.requests import fresh_key, with_connection, with_retries
from semel.cli.source import STDIN, open_source, read_whole

NO_KIND = "Name the KIND of the job; with --lines each line may name its own."
NOT_ONE = "--lines takes its jobs from standard input or --file, not from PARAMS."
DISABLED = "The server has idempotency switched off: a retry would create another job."


class _SubmitOptions(NamedTuple):
    """The options of a submission."""

    server: CliJobServer
    options: Facts
    key: str | None
    is_key_fresh: bool
    as_json: bool


@click.command()
@click.argument("kind", required=False)
@click.argument("params", required=False)
@click.option("--file", type=click.File("rb"), help="File with the params, or with --lines the jobs; - is stdin.")
@click.option("--key", help="Idempotency key; by default a new one, which is printed.")
@click.option("--no-key", is_flag=True, help="Submit without a key; a retry then creates another job.")
@click.option("--lines", is_flag=True, help="Each line is a job, or params of KIND, with the key KEY-1, KEY-2 ...")
@click.option("--batch", type=click.IntRange(1, BATCH_ITEMS), default=BATCH_ITEMS, help="Maximum lines per request.")
@click.option(
    "--wait",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Wait at most this time for the end of the job, in seconds.",
)
@with_job_options
@with_retries
@with_json
@with_connection
def submit(
    connection: CliConnection,
    kind: str | None,
    params: str | None,
    file: BinaryIO | None,
    key: str | None,
    no_key: bool,
    lines: bool,
    batch: int,
    wait: float | None,
    options: Facts,
    retries: int,
    as_json: bool,
) -> None:
    """Queue a job of a KIND, exactly once. PARAMS is a JSON object, or - for standard input.

    After a lost connection or a busy server the request is retried with the same key, which the server queues at most
    once. With --lines a line holds the params, or without KIND a whole job: {"kind", "params", "idempotency_key", ...}.
    Run an interrupted import again with the same --key to continue where it stopped.
    """
    if key is not None and no_key:
        raise click.UsageError("Give --key or --no-key, not both.")
    source = _source(kind, params, file, lines, wait)
    is_key_fresh = key is None and not no_key
    manner = _SubmitOptions(
        CliJobServer(connection, retries), options, fresh_key() if is_key_fresh else key, is_key_fresh, as_json
    )
    if lines:
        _submit_lines(manner, kind, source or sys.stdin.buffer, batch)
    elif kind is not None:
        _submit_one(manner, kind, b"{}" if source is None else read_whole(source), wait)


def _source(
    kind: str | None, params: str | None, file: BinaryIO | None, lines: bool, wait: float | None
) -> BinaryIO | None:
    if lines and params not in (None, STDIN):
        raise click.UsageError(NOT_ONE)
    if lines and wait is not None:
        raise click.UsageError("Give --wait or --lines, not both: --wait is for one job.")
    if not lines and kind is None:
        raise click.UsageError(NO_KIND)
    return open_source(None if params == STDIN else params, file, from_stdin=params == STDIN)


def _submit_one(manner: _SubmitOptions, kind: str, params: bytes, wait: float | None) -> None:
    server, key = manner.server, manner.key
    try:
        draft = draft_job(kind, params, manner.options, key)
        facts = server.post(PATH, draft.text, has_identity=key is not None)
    except CliJobDraftError as error:
        raise click.ClickException(str(error)) from None
    except RequestError as error:
        if error.is_unsettled:
            raise click.ClickException(f"{error.message} {_unsettled(key)}") from error
        raise
    if facts.get("idempotency") == "disabled":
        click.echo(DISABLED, err=True)
    if wait is None or not manner.as_json:
        say(manner.as_json, {"idempotency_key": key, **facts}, answer_sentence(facts, key))
    if wait is not None:
        job = wait_for_end(server, facts["job_id"], wait)
        exit_with({"idempotency_key": key, "dedup": facts.get("dedup"), **job}, manner.as_json)


def _unsettled(key: str | None) -> str:
    if key is None:
        return "It may be queued: without a key it was not retried. Check with `semel jobs list`."
    return f"It may be queued: run this again with --key {key} to queue it exactly once."


def _submit_lines(manner: _SubmitOptions, kind: str | None, source: BinaryIO, batch: int) -> None:
    def draft(raw: bytes, key: str | None) -> CliJobDraft:
        return draft_line(raw, manner.options, key) if kind is None else draft_job(kind, raw, manner.options, key)

    def tell(line: int, draft: CliJobDraft, verdict: CliJobVerdict) -> None:
        if manner.as_json:
            click.echo(json.dumps({"line": line, "idempotency_key": draft.key, **verdict.facts}))
        elif verdict.refusal is not None:
            click.echo(f"Line {line}: {verdict.refusal.message}", err=True)

    done = CliJobImport(manner.server, CliJobPlan(draft, manner.key, manner.is_key_fresh, batch, tell))
    done.run(source)
    if not manner.as_json:
        again = f" (--key {manner.key})" if done.makes_keys else ""
        click.echo(f"Submitted {done.new + done.known} jobs: {done.new} new, {done.known} already there{again}")
    if done.refused:
        count = done.new + done.known + done.refused
        raise click.ClickException(f"{done.refused} of {count} jobs were refused.")
