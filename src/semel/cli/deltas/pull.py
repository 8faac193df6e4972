"""`semel deltas pull`: what a gateway delivers, one entry a line, to its end or, with --follow, until interrupted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import click

from semel.cli.access import with_connection
from semel.cli.connection import Connection
from semel.cli.deltas.asking import Server, sync_path
from semel.cli.deltas.names import GatewayType
from semel.cli.deltas.saving import CutShortError, standard_output
from semel.cli.events.members import members
from semel.cli.jobs.asking import with_retries
from semel.cli.streams.messages import messages
from semel.contracts.deltas.limits import MAX_PAGE
from semel.kernel.hlc import MAX_HLC

CLIENT = "semel-cli"
"""The default client id: a replica that never pushes, so that its stored progress affects no other client."""

PAGE = 1_000
EVERY_SECONDS = 1.0


class Page(NamedTuple):
    """Entries as the server gave them, one on each line."""

    entries: list[str]
    cursor: int
    has_more: bool


@click.command()
@click.argument("gateway", type=GatewayType())
@click.option(
    "--since",
    type=click.IntRange(0, MAX_HLC),
    default=0,
    metavar="CURSOR",
    help="Start after this cursor; 0 is the beginning.",
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Limit of entries to print.")
@click.option("--follow", is_flag=True, help="Wait for new entries until Control-C.")
@click.option(
    "--every",
    type=click.FloatRange(min=0.05),
    default=EVERY_SECONDS,
    help="With --follow: seconds between two requests.",
)
@click.option("--client", default=CLIENT, show_default=True, metavar="ID", help="Client id to pull as.")
@with_retries
@with_connection
def pull(
    connection: Connection,
    gateway: str,
    since: int,
    limit: int | None,
    follow: bool,
    every: float,
    client: str,
    retries: int,
) -> None:
    """Print the entries of a gateway in their order, one JSON object a line.

    At the end the next cursor is printed on standard error. Do not pull with the --client of a replica that is in use:
    the server would count what is printed here as delivered to that replica.
    """
    if follow and limit is not None:
        raise click.UsageError("--follow goes on without end: it has no --limit.")
    # Control-C is the usual way to stop following, so it is no failure.
    try:
        with suppress(KeyboardInterrupt), standard_output() as out:
            for page in _pages(Server(connection, retries), gateway, client, since, limit, every if follow else None):
                out.write("".join(f"{entry}\n" for entry in page.entries).encode())
                out.flush()
                since = page.cursor
    except CutShortError:
        # It is unknown how much of it was read: no cursor would be right.
        click.echo("Not all was printed: standard output was closed before its end.", err=True)
        return
    click.echo(f"As of {since}: go on with --since {since}.", err=True)


def _pages(
    server: Server, gateway: str, client: str, since: int, most: int | None, every: float | None
) -> Iterator[Page]:
    """All pages there are, or at most `most` entries; with a time between two polls, new pages too."""
    while True:
        page = _page(server, gateway, client, since, PAGE if most is None else min(most, PAGE, MAX_PAGE))
        if page.has_more and page.cursor <= since:
            raise server.stranger()
        yield page
        since = page.cursor
        most = None if most is None else most - len(page.entries)
        if most == 0 or (not page.has_more and every is None):
            return
        if not page.has_more and every is not None:
            time.sleep(every)


def _page(server: Server, gateway: str, client: str, since: int, limit: int) -> Page:
    body = server.ask(sync_path(gateway, "pull"), {"since": since, "clientId": client, "limit": limit})
    try:
        facts = members(body.decode())
        entries = list(messages(facts["deltas"].encode()))
        return Page(entries, int(facts["serverHlc"].strip('"')), facts["hasMore"] == "true")
    except (ValueError, KeyError) as error:
        raise server.stranger() from error
