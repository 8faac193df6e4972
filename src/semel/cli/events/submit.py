"""`semel events submit`: commit events exactly once, with retries."""

from __future__ import annotations

import json
import sys
from typing import BinaryIO

import click

from semel.cli.access import with_connection
from semel.cli.connection import Connection
from semel.cli.events.drafts import DraftError, draft_event
from semel.cli.events.lines import BATCH_ITEMS, Import
from semel.cli.events.posting import Target, Verdict
from semel.cli.failures import RequestError
from semel.cli.keys import fresh_key
from semel.cli.output import say, with_json
from semel.cli.retries import RETRIES
from semel.cli.streams.source import STDIN, open_source, read_whole

NO_EVENT = "Give an event: --event JSON, --event - for standard input, or --file FILE; or many with --lines."
NO_PARTITION = "Name at least one partition."
NOT_ONE = "--lines takes its events from standard input or --file, not from --event."


@click.command()
@click.argument("partitions", nargs=-1, metavar="PARTITION...")
@click.option("--event", metavar="JSON", help="The event, a JSON object with a type; - is standard input.")
@click.option("--file", type=click.File("rb"), help="File with the event, or with --lines the events; - is stdin.")
@click.option("--id", "name", metavar="ID", help="Id of the event, which is committed once; by default a new one.")
@click.option("--client-id", metavar="NAME", help="Client id of the event, if the server requires no credentials.")
@click.option("--lines", is_flag=True, help="Submit each line as an event, with the id ID-1, ID-2, ... or its own.")
@click.option(
    "--batch", type=click.IntRange(1, BATCH_ITEMS), default=BATCH_ITEMS, help="Limit of lines in one request."
)
@click.option(
    "--retries",
    type=click.IntRange(min=0),
    default=RETRIES,
    show_default=True,
    help="Retries after a failed request; 0 is none.",
)
@with_json
@with_connection
def submit(
    connection: Connection,
    partitions: tuple[str, ...],
    event: str | None,
    file: BinaryIO | None,
    name: str | None,
    client_id: str | None,
    lines: bool,
    batch: int,
    retries: int,
    as_json: bool,
) -> None:
    """Commit an event to one or more partitions, exactly once.

    A lost connection or a busy server is tried again with the same id, which the server commits at most once. With
    --lines a line is an event, or {"id", "event", "partitions"} as `semel events read` prints it. Run an interrupted
    import again with the same --id, and it goes on where it stopped.
    """
    source = _source(partitions, event, file, lines)
    name = fresh_key() if name is None else name
    target = Target(connection, client_id, retries)
    if lines:
        _submit_lines(target, source, name, partitions, batch, as_json)
    else:
        _submit_one(target, source, name, partitions, as_json)


def _source(partitions: tuple[str, ...], event: str | None, file: BinaryIO | None, lines: bool) -> BinaryIO:
    if lines and event not in (None, STDIN):
        raise click.UsageError(NOT_ONE)
    if not lines and not partitions:
        raise click.UsageError(NO_PARTITION)
    source = open_source(None if event == STDIN else event, file, from_stdin=event == STDIN)
    if source is not None:
        return source
    if not lines:
        raise click.UsageError(NO_EVENT)
    return sys.stdin.buffer


def _submit_one(target: Target, source: BinaryIO, name: str, partitions: tuple[str, ...], as_json: bool) -> None:
    try:
        verdict = target.submit([draft_event(read_whole(source), name, partitions)])[0]
    except DraftError as error:
        raise click.ClickException(str(error)) from None
    except RequestError as error:
        if error.is_unsettled:
            advice = f"It may be committed: run this again with --id {name}, and it is committed once."
            raise click.ClickException(f"{error.message} {advice}") from error
        raise
    if verdict.committed_id is not None or as_json:
        say(as_json, verdict.facts, verdict.sentence)
    if verdict.committed_id is None:
        raise click.ClickException(verdict.sentence)


def _submit_lines(
    target: Target, source: BinaryIO, base: str, partitions: tuple[str, ...], batch: int, as_json: bool
) -> None:
    def tell(line: int, verdict: Verdict) -> None:
        if as_json:
            click.echo(json.dumps({"line": line, **verdict.facts}))
        elif verdict.committed_id is None:
            click.echo(f"Line {line}: {verdict.sentence}", err=True)

    done = Import(target, base, partitions, batch, tell)
    done.run(source)
    if not as_json:
        last = "" if done.last_id is None else f", up to committed_id {done.last_id}"
        again = f" ({done.repeated_with})" if done.makes_ids else ""
        click.echo(f"Committed {done.committed} events{last}{again}")
    if done.rejected:
        raise click.ClickException(f"{done.rejected} of {done.committed + done.rejected} events were rejected.")
