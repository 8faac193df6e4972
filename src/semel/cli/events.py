"""`semel events`: submit, read and follow events from a terminal or a script.

With `submit --lines` a line without an id gets one made of a base id and the line's number. A second run with the same
base commits the missing events and duplicates none, at any later time: ids are kept forever.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Annotated, Any, BinaryIO

import click

from semel.cli.command import AT_LEAST_1, Json, Opt, Positional, Retrying, command, group
from semel.cli.lines import CliLineImport
from semel.cli.output import Listing, Said, content_out, printable, shown_time
from semel.cli.session import advised
from semel.cli.source import STDIN, open_source, read_whole
from semel.client import Client
from semel.client.errors import CallError
from semel.client.events.calls import MOST_COMMITTED_ID
from semel.client.events.errors import EventRejectedError, EventsPrunedError, EventsResetError
from semel.client.events.follow import EventFollower
from semel.client.events.item_texts import event_item, line_item
from semel.client.events.submission import ITEMS, EventItemText, new_event_id
from semel.client.events.values import CommittedEvent, Cursor, Event, PartitionInfo
from semel.kernel.json.fragment import dump

events = group("events", "Events in partitions, committed once and in one order.")

SHOWN, PAGE = 500, 1_000
INCOMPLETE = 4
"""Exit code of a strict tail that misses events."""
Partitions = Annotated[
    tuple[str, ...], Opt("Partition to read; may be repeated.", "--partition", "NAME", is_required=True)
]
Types = Annotated[tuple[str, ...], Opt("Only events of this type; may be repeated.", "--type", "TYPE")]
Position = click.IntRange(min=0)
WATERMARK_HELP = "Commit it only if the last event of its partitions has this committed_id; 0 if there is none."


@command(events)
def submit(
    client: Retrying,
    partitions: Annotated[tuple[str, ...], Positional("PARTITION...")] = (),
    event: Annotated[str | None, Opt("The event, a JSON object with a type; - is standard input.", "", "JSON")] = None,
    file: Annotated[
        BinaryIO | None, Opt("File with the event, or with --lines the events; - is standard input.")
    ] = None,
    name: Annotated[
        str | None, Opt("Id of the event, under which it is committed once; by default a new one.", "--id", "ID")
    ] = None,
    client_id: Annotated[
        str | None, Opt("Client id of the event, for a server without credentials.", "", "NAME")
    ] = None,
    if_watermark: Annotated[int | None, Opt(WATERMARK_HELP, "", "N", Position)] = None,
    lines: Annotated[bool, Opt("Submit each line as an event, with the id ID-1, ID-2, ... or its own.")] = False,
    batch: Annotated[int, Opt("Maximum lines per request.", type=click.IntRange(1, ITEMS))] = ITEMS,
    as_json: Json = False,
) -> Said | None:
    """Commit an event to one or more partitions, exactly once.

    After a lost connection or a busy server the request is retried with the same id, which the server commits at most
    once. With --lines a line is an event, or {"id", "event", "partitions"} as `semel events read` prints it. Run an
    interrupted import again with the same --id to continue where it stopped.
    """
    if lines and (event not in (None, STDIN) or if_watermark is not None):
        raise click.UsageError("--lines takes its events from standard input or --file, and has no --if-watermark.")
    if not lines and not partitions:
        raise click.UsageError("Name at least one partition.")
    source = open_source(None if event == STDIN else event, file, from_stdin=event == STDIN)
    if source is None and not lines:
        raise click.UsageError("Give an event: --event JSON, --event - for standard input, or --file FILE; or --lines.")
    name = new_event_id() if name is None else name
    if lines:
        _EventImport(client, name, batch, as_json, partitions, client_id).run(source or sys.stdin.buffer).report()
        return None
    assert source is not None
    item = event_item(read_whole(source), name, partitions, if_watermark)
    [verdict] = client.events.submit_items([item], client_id=client_id)
    if isinstance(verdict, EventRejectedError) and as_json:
        click.echo(json.dumps(_verdict_facts(verdict)))
    if isinstance(verdict, CallError):
        with advised(f"It may be committed: run this again with --id {printable(name)} to commit it exactly once."):
            raise verdict
    facts = _verdict_facts(verdict)
    return Said(facts, f"Committed {name} as {verdict.committed_id} ({shown_time(facts['status_updated_at'])})")


def _verdict_facts(verdict: CommittedEvent | EventRejectedError) -> dict[str, Any]:
    if isinstance(verdict, EventRejectedError):
        return dict(verdict.facts)
    at = round(verdict.status_updated_at.timestamp() * 1_000)
    return {"id": verdict.id, "status": "committed", "committed_id": verdict.committed_id, "status_updated_at": at}


class _EventImport(CliLineImport[EventItemText]):
    def __init__(
        self, client: Client, base: str, batch: int, as_json: bool, partitions: tuple[str, ...], client_id: str | None
    ) -> None:
        super().__init__(base, batch, as_json)
        self._client = client
        self._partitions = partitions
        self._client_id = client_id
        self._committed = self._rejected = self._last_id = 0

    def draft(self, content: bytes, made: str | None) -> EventItemText:
        return line_item(content, made or "", self._partitions)

    def name(self, draft: EventItemText) -> str:
        return draft.id

    def starts_batch(self, draft: EventItemText) -> bool:
        return any(one.draft.id == draft.id for one in self.waiting)  # a request has each id once

    @property
    def advice(self) -> str:
        again = f"run this again with --id {printable(self.base or '')}" if self.makes_names else "run this again"
        return f"Earlier lines are done: {again}, and no event is committed twice."

    def send(self) -> None:
        for verdict in self._client.events.submit_items([one.draft for one in self.waiting], client_id=self._client_id):
            if not isinstance(verdict, CommittedEvent | EventRejectedError):
                raise verdict
            line = self.waiting.popleft()
            self.done = line.number
            if isinstance(verdict, CommittedEvent):
                self._committed += 1
                self._last_id = max(self._last_id, verdict.committed_id)
            else:
                self._rejected += 1
            self.tell(line, _verdict_facts(verdict), verdict if isinstance(verdict, EventRejectedError) else None)

    def report(self) -> None:
        if not self.as_json:
            last = f", up to committed_id {self._last_id}" if self._last_id else ""
            again = f" (--id {printable(self.base or '')})" if self.makes_names else ""
            click.echo(f"Committed {self._committed} events{last}{again}")
        if self._rejected:
            count = self._committed + self._rejected
            raise click.ClickException(f"{self._rejected} of {count} events were rejected.")


@command(events)
def read(
    client: Client,
    partitions: Partitions,
    since: Annotated[int, Opt("Start after this committed_id.", type=Position)] = 0,
    limit: Annotated[int | None, Opt(f"Maximum events to print.  [{SHOWN}]", "", "N", AT_LEAST_1)] = None,
    is_all: Annotated[bool, Opt("Print all events that exist at the start.", "--all")] = False,
    last: Annotated[int | None, Opt("Print the last N events.", "", "N", click.IntRange(1, 10_000))] = None,
    reverse: Annotated[bool, Opt("Print the newest event first.")] = False,
    before: Annotated[
        int | None, Opt("With --last or --reverse: only events before this committed_id.", "", "N", Position)
    ] = None,
    types: Types = (),
) -> None:
    """Print events in order, one JSON object per line."""
    if is_all + (limit is not None) + (last is not None) > 1:
        raise click.UsageError("Give one of --limit, --all and --last.")
    is_backward = reverse or last is not None
    if (before is not None and not is_backward) or (since and is_backward):
        raise click.UsageError("--since reads forwards, --before needs --last or --reverse.")
    most = None if is_all else last or limit or SHOWN
    found = _backwards(client, partitions, before, most, types) if is_backward else None
    if found is None:
        at = min(since, MOST_COMMITTED_ID)
        found = _followed(client.events.follow(partitions, cursor=at, types=types, live=False))
    elif last is not None:
        chosen = list(islice(found, last))
        found, most = iter(chosen if reverse else reversed(chosen)), None
    shown: Event | None = None
    with content_out() as out:
        for count, event in enumerate(found):
            if count == most and shown is not None:
                option = "--before" if reverse else "--since"
                words = f"There are more: continue with {option} {shown.committed_id}, or give --all."
                click.echo(words, err=True)
                break
            out.write(_line(event))
            shown = event


def _line(event: Event) -> bytes:
    return dump(event.facts) + b"\n"


def _tell_pruned(committed_id: int) -> None:
    click.echo(f"Events up to {committed_id} are no longer kept.", err=True)


def _backwards(
    client: Client, partitions: tuple[str, ...], before: int | None, most: int | None, types: tuple[str, ...]
) -> Iterator[Event]:
    """The newest event first."""
    has_more = True
    while has_more:
        page = client.events.last(partitions, min(most or PAGE, PAGE), before=before, types=types)
        if page.pruned_to is not None:
            _tell_pruned(page.pruned_to)
        yield from reversed(page.events)
        before, has_more = page.next_before, page.has_more


def _followed(follower: EventFollower, *, strict: bool = False) -> Iterator[Event]:
    """The events of a follower; what retention has deleted is told, and a strict reader ends there."""
    while True:
        try:
            yield from follower
            return
        except EventsPrunedError as gap:
            _tell_pruned(gap.next_cursor.committed_id)
            if strict:
                sys.exit(INCOMPLETE)
            follower.accept(gap)
        except EventsResetError as gap:
            agreed = gap.next_cursor.committed_id
            lost = "Events were lost when a backup was restored; some that were printed may be among them."
            words = f"{lost} Both histories agree up to {agreed}: continue with --since {agreed}."
            raise click.ClickException(words) from gap


@command(events)
def tail(
    client: Client,
    partitions: Partitions,
    since: Annotated[
        int | None, Opt("Start after this committed_id; by default with new events.", type=Position)
    ] = None,
    from_start: Annotated[bool, Opt("Start at the beginning, as --since 0 does.")] = False,
    strict: Annotated[bool, Opt("Exit with code 4 if retention has deleted requested events.")] = False,
    types: Types = (),
) -> None:
    """Follow partitions live, one JSON object per line.

    It reconnects after the last event; Control-C ends it. Events deleted by retention are reported on standard error.
    """
    if from_start and since is not None:
        raise click.UsageError("Give --since or --from-start, not both.")
    # Control-C is the usual way to stop, so it is not a failure.
    with suppress(KeyboardInterrupt), content_out() as out:
        at: Cursor | int = 0 if since is None else min(since, MOST_COMMITTED_ID)
        if since is None and not from_start:
            at = client.events.end(partitions)
        for event in _followed(client.events.follow(partitions, cursor=at, types=types), strict=strict):
            out.write(_line(event))
            out.flush()


@command(events)
def get(client: Client, name: Annotated[str, Positional("ID")]) -> None:
    """Print the event of an id as one JSON object."""
    found = client.events.get(name)
    with content_out() as out:
        out.write(_line(found))


@command(events, "partitions")
def list_partitions(client: Client, prefix: Annotated[str, Positional()] = "") -> Listing[PartitionInfo]:
    """List all partitions, or those whose names start with PREFIX."""
    head = ("PARTITION", "EVENTS", "FIRST", "WATERMARK")
    return Listing(client.events.walk_partitions(prefix), head, _partition_row, "There are no partitions.")


def _partition_row(one: PartitionInfo) -> tuple[object, ...]:
    first = one.first_committed_id
    return one.name, one.events, "none" if first is None else first, one.watermark
