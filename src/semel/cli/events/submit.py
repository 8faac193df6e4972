"""`semel events submit`: one event, or one per line in batches, each committed once.

A line without an id gets one made of a base id and the line's number. A second run with the same base commits the
missing events and duplicates none, at any later time: ids are kept forever.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple

import click

from semel.cli.connection import CliConnection, RequestError
from semel.cli.events.requests import (
    CliEventDraft,
    CliEventDraftError,
    CliEventTarget,
    CliEventVerdict,
    draft_event,
    draft_line,
)
from semel.cli.output import progress, say, with_json
from semel.cli.requests import RETRIES, fresh_key, line_key, with_connection
from semel.cli.source import STDIN, line_groups, open_source, read_whole, size_of

BATCH_ITEMS = 100
BATCH_BYTES = 256 * 1024
"""Well below the server's limit of a request, unless one line is larger."""


class _EventLine(NamedTuple):
    number: int
    size: int
    draft: CliEventDraft


class CliEventImport:
    """Submits lines, and passes each verdict with its line number to `tell`."""

    def __init__(
        self,
        target: CliEventTarget,
        base: str,
        partitions: Sequence[str],
        batch_items: int,
        tell: Callable[[int, CliEventVerdict], None],
    ) -> None:
        self._target = target
        self._partitions = partitions
        self._batch_items = batch_items
        self._tell = tell
        self._waiting: list[_EventLine] = []
        self._read = 0
        self._done = 0
        """The last line that was answered."""
        self.base = base
        self.makes_ids = False
        self.committed = 0
        self.rejected = 0
        self.last_id: int | None = None

    def run(self, source: BinaryIO) -> None:
        """Submit every line in order. A line that cannot be sent ends the import; a rejected one does not."""
        with self._resumable(), progress(size_of(source), "Submitting") as advance:
            for lines in line_groups(source):
                for line in lines:
                    self._take(line, advance)
                self._send(advance)

    @property
    def repeated_with(self) -> str:
        """The option that makes another run safe; empty if every line had its own id."""
        return f"--id {self.base}" if self.makes_ids else ""

    def _take(self, line: bytes, advance: Callable[[int], None]) -> None:
        self._read += 1
        content = line.strip(b" \t\r\n")
        if not content:
            advance(len(line))
            return
        made = line_key(self.base, self._read)
        try:
            draft = draft_line(content, made, self._partitions)
        except CliEventDraftError as error:
            self._send(advance)
            raise click.ClickException(f"Line {self._read}: {error} {self._advice}") from None
        self.makes_ids = self.makes_ids or draft.id == made
        if self._is_full(draft):
            self._send(advance)
        self._waiting.append(_EventLine(self._read, len(line), draft))

    def _is_full(self, draft: CliEventDraft) -> bool:
        """Whether the request is full. A request has each id once, so a line with a repeated id starts the next one."""
        size = sum(len(line.draft.text) for line in self._waiting) + len(draft.text)
        is_known = any(line.draft.id == draft.id for line in self._waiting)
        return len(self._waiting) >= self._batch_items or size > BATCH_BYTES or is_known

    def _send(self, advance: Callable[[int], None]) -> None:
        if not self._waiting:
            return
        verdicts = self._target.submit([line.draft for line in self._waiting])
        answered, self._waiting = self._waiting, []
        self._done = answered[-1].number
        for line, verdict in zip(answered, verdicts, strict=True):
            if verdict.committed_id is None:
                self.rejected += 1
            else:
                self.committed += 1
                self.last_id = max(self.last_id or 0, verdict.committed_id)
            self._tell(line.number, verdict)
            advance(line.size)

    @property
    def _advice(self) -> str:
        again = f"run this again with {self.repeated_with}" if self.makes_ids else "run this again"
        return f"Earlier lines are done: {again}, and no event is committed twice."

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


NO_EVENT = "Give an event: --event JSON, --event - for standard input, or --file FILE; or many with --lines."
NO_PARTITION = "Name at least one partition."
NOT_ONE = "--lines takes its events from standard input or --file, not from --event."


@click.command()
@click.argument("partitions", nargs=-1, metavar="PARTITION...")
@click.option("--event", metavar="JSON", help="The event, a JSON object with a type; - is standard input.")
@click.option("--file", type=click.File("rb"), help="File with the event, or with --lines the events; - is stdin.")
@click.option(
    "--id", "name", metavar="ID", help="Id of the event, under which it is committed once; by default a new one."
)
@click.option("--client-id", metavar="NAME", help="Client id of the event, for a server without credentials.")
@click.option("--lines", is_flag=True, help="Submit each line as an event, with the id ID-1, ID-2, ... or its own.")
@click.option("--batch", type=click.IntRange(1, BATCH_ITEMS), default=BATCH_ITEMS, help="Maximum lines per request.")
@click.option(
    "--retries",
    type=click.IntRange(min=0),
    default=RETRIES,
    show_default=True,
    help="Maximum retries of a failed request; 0 means none.",
)
@with_json
@with_connection
def submit(
    connection: CliConnection,
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

    After a lost connection or a busy server the request is retried with the same id, which the server commits at most
    once. With --lines a line is an event, or {"id", "event", "partitions"} as `semel events read` prints it. Run an
    interrupted import again with the same --id to continue where it stopped.
    """
    source = _source(partitions, event, file, lines)
    name = fresh_key() if name is None else name
    target = CliEventTarget(connection, client_id, retries)
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


def _submit_one(
    target: CliEventTarget, source: BinaryIO, name: str, partitions: tuple[str, ...], as_json: bool
) -> None:
    try:
        verdict = target.submit([draft_event(read_whole(source), name, partitions)])[0]
    except CliEventDraftError as error:
        raise click.ClickException(str(error)) from None
    except RequestError as error:
        if error.is_unsettled:
            advice = f"It may be committed: run this again with --id {name} to commit it exactly once."
            raise click.ClickException(f"{error.message} {advice}") from error
        raise
    if verdict.committed_id is not None or as_json:
        say(as_json, verdict.facts, verdict.sentence)
    if verdict.committed_id is None:
        raise click.ClickException(verdict.sentence)


def _submit_lines(
    target: CliEventTarget, source: BinaryIO, base: str, partitions: tuple[str, ...], batch: int, as_json: bool
) -> None:
    def tell(line: int, verdict: CliEventVerdict) -> None:
        if as_json:
            click.echo(json.dumps({"line": line, **verdict.facts}))
        elif verdict.committed_id is None:
            click.echo(f"Line {line}: {verdict.sentence}", err=True)

    done = CliEventImport(target, base, partitions, batch, tell)
    done.run(source)
    if not as_json:
        last = "" if done.last_id is None else f", up to committed_id {done.last_id}"
        again = f" ({done.repeated_with})" if done.makes_ids else ""
        click.echo(f"Committed {done.committed} events{last}{again}")
    if done.rejected:
        raise click.ClickException(f"{done.rejected} of {done.committed + done.rejected} events were rejected.")
