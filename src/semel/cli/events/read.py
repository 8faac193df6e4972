"""`semel events read` and `semel events tail`: the history of partitions page by page, and new events live.

All pages of one `read` end at the last position at its start. `tail` reconnects after the last position received; only
a permanent refusal, such as that of an expired token, ends it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import urlencode

import click

from semel.cli.connection import CliConnection, RequestError, not_semel
from semel.cli.events.requests import PATH, SURFACE
from semel.cli.output import content_out
from semel.cli.requests import parse_events, pause_seconds, with_connection
from semel.cli.source import members, messages
from semel.surfaces.events.limits import MAX_COMMITTED_ID, PAGE_DEFAULT, PAGE_MOST


class CliEventPage(NamedTuple):
    """Events in the server's own text, one per line."""

    events: list[str]
    next_since: int
    sync_to: int
    has_more: bool
    pruned_to: int
    """Events up to here are no longer kept."""


def pages(connection: CliConnection, partitions: Sequence[str], since: int, most: int | None) -> Iterator[CliEventPage]:
    """The events after a position, at most `most`; None means all."""
    to: int | None = None
    while most is None or most > 0:
        page = _page(connection, partitions, since, PAGE_MOST if most is None else min(most, PAGE_MOST), to)
        yield page
        if not page.has_more:
            return
        if page.next_since <= since:
            raise not_semel(connection.address, SURFACE)
        since, to = page.next_since, page.sync_to
        most = None if most is None else most - len(page.events)


def last_position(connection: CliConnection, partitions: Sequence[str]) -> int:
    """The last committed_id of the whole log."""
    return _page(connection, partitions, MAX_COMMITTED_ID, 1, None).sync_to


def query_of(partitions: Sequence[str], since: int, **more: int) -> str:
    """The query string."""
    fields = [*(("partition", name) for name in partitions), ("since", since), *more.items()]
    return urlencode(fields, errors="surrogateescape")


def _page(connection: CliConnection, partitions: Sequence[str], since: int, limit: int, to: int | None) -> CliEventPage:
    bound = {} if to is None else {"to": to}
    body = connection.request("GET", f"{PATH}?{query_of(partitions, since, limit=limit, **bound)}").body
    try:
        facts = members(body.decode())
        events = list(messages(facts["events"].encode()))
        next_since, sync_to = int(facts["next_since_committed_id"]), int(facts["sync_to_committed_id"])
        has_more = json.loads(facts["has_more"]) is True
        return CliEventPage(events, next_since, sync_to, has_more, int(facts.get("pruned_to_committed_id", "0")))
    except (ValueError, KeyError) as error:
        raise not_semel(connection.address, SURFACE) from error


class CliFollowedEvent(NamedTuple):
    """One event in the server's own text, and its position."""

    text: str
    committed_id: int


class Pruned(NamedTuple):
    """Retention has deleted events up to this position, possibly some of the requested ones."""

    committed_id: int


def follow(connection: CliConnection, partitions: Sequence[str], since: int) -> Iterator[CliFollowedEvent | Pruned]:
    """Events after a position, without an end, and a `Pruned` where some are missing."""
    path = f"{PATH}?{query_of(partitions, since)}"
    headers = {"Accept": b"text/event-stream"}
    failures = 0
    while True:
        try:
            for event in _one_connection(connection, path, headers):
                failures = 0
                # Continue after deleted events too: another connection would only report them again.
                headers["Last-Event-ID"] = str(event.committed_id).encode()
                yield event
        except RequestError as error:
            if not error.may_pass:
                raise
            if failures == 0:
                click.echo(f"{error.message} Trying again.", err=True)
            failures += 1
        time.sleep(pause_seconds(failures))


def _one_connection(
    connection: CliConnection, path: str, headers: dict[str, bytes]
) -> Iterator[CliFollowedEvent | Pruned]:
    with connection.events(path, headers, SURFACE) as response:
        try:
            for event in parse_events(iter(response.readline, b"")):
                text = event.data.strip().decode()
                if event.kind == "reset":
                    raise _reset(int(members(text)["agreed_committed_id"]))
                if event.kind == "pruned":
                    yield Pruned(int(members(text)["pruned_to_committed_id"]))
                else:
                    yield CliFollowedEvent(text, int(members(text)["committed_id"]))
        except (ValueError, KeyError) as error:
            raise not_semel(connection.address, SURFACE) from error


def _reset(agreed_id: int) -> click.ClickException:
    """The error after a restore: printed events may belong to a lost history, so the user must decide how to
    continue."""
    lost = "Events were lost when a backup was restored; some that were printed may be among them."
    return click.ClickException(f"{lost} Both histories agree up to {agreed_id}: continue with --since {agreed_id}.")


@click.command()
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    required=True,
    metavar="NAME",
    help="Partition to read; may be repeated.",
)
@click.option("--since", type=click.IntRange(min=0), default=0, help="Start after this committed_id.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help=f"Maximum events to print.  [{PAGE_DEFAULT}]")
@click.option("--all", "is_all", is_flag=True, help="Print all events that exist at the start.")
@with_connection
def read(connection: CliConnection, partitions: tuple[str, ...], since: int, limit: int | None, is_all: bool) -> None:
    """Print events in order, one JSON object per line."""
    if is_all and limit is not None:
        raise click.UsageError("Give --limit or --all, not both.")
    most = None if is_all else limit or PAGE_DEFAULT
    with content_out() as out:
        page = None
        for page in pages(connection, partitions, since, most):
            if since < page.pruned_to:
                click.echo(f"Events up to {page.pruned_to} are no longer kept.", err=True)
                since = page.pruned_to
            out.write("".join(f"{event}\n" for event in page.events).encode())
        if page is not None and page.has_more:
            click.echo(f"There are more: continue with --since {page.next_since}, or give --all.", err=True)


INCOMPLETE = 4
"""Exit code of a strict tail that misses events."""


@click.command()
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    required=True,
    metavar="NAME",
    help="Partition to read; may be repeated.",
)
@click.option("--since", type=click.IntRange(min=0), help="Start after this committed_id; by default with new events.")
@click.option("--from-start", is_flag=True, help="Start at the beginning, as --since 0 does.")
@click.option("--strict", is_flag=True, help="Exit with code 4 if retention has deleted requested events.")
@with_connection
def tail(
    connection: CliConnection, partitions: tuple[str, ...], since: int | None, from_start: bool, strict: bool
) -> None:
    """Follow partitions live, one JSON object per line.

    It reconnects after the last event; Control-C ends it. Events deleted by retention are reported on standard error.
    """
    if from_start and since is not None:
        raise click.UsageError("Give --since or --from-start, not both.")
    # Control-C is the usual way to stop, so it is not a failure.
    with suppress(KeyboardInterrupt), content_out() as out:
        if since is None:
            since = 0 if from_start else last_position(connection, partitions)
        for event in follow(connection, partitions, since):
            if isinstance(event, Pruned):
                click.echo(f"Events up to {event.committed_id} are no longer kept.", err=True)
                if strict:
                    sys.exit(INCOMPLETE)
                continue
            out.write(f"{event.text}\n".encode())
            out.flush()
