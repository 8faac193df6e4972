"""`semel deltas pull`: prints the entries of a gateway, one per line, to the end of its log or until interrupted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import click

from semel.cli.connection import CliConnection
from semel.cli.deltas.admin import CliDeltaServer, sync_path
from semel.cli.deltas.arguments import CutShortError, GatewayType, standard_output
from semel.cli.requests import with_connection, with_retries
from semel.cli.source import members, messages
from semel.kernel.hlc import MAX_HLC
from semel.surfaces.deltas.limits import MAX_PAGE

CLIENT = "semel-cli"
"""The default client id. It never pushes, so its stored cursor affects no other client."""

PAGE = 1_000
EVERY_SECONDS = 1.0


class CliDeltaPage(NamedTuple):
    """Entries in the server's own text, one per line."""

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
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Maximum entries to print.")
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
    connection: CliConnection,
    gateway: str,
    since: int,
    limit: int | None,
    follow: bool,
    every: float,
    client: str,
    retries: int,
) -> None:
    """Print the entries of a gateway in order, one JSON object per line.

    The next cursor is printed to standard error at the end. Do not use the --client of an active replica: the server
    would count these entries as delivered to it.
    """
    if follow and limit is not None:
        raise click.UsageError("Give --follow or --limit, not both: --follow does not end.")
    # Control-C is the usual way to stop, so it is not a failure.
    try:
        with suppress(KeyboardInterrupt), standard_output() as out:
            for page in _pages(
                CliDeltaServer(connection, retries), gateway, client, since, limit, every if follow else None
            ):
                out.write("".join(f"{entry}\n" for entry in page.entries).encode())
                out.flush()
                since = page.cursor
    except CutShortError:
        # It is unknown how much the reader got, so no cursor is printed.
        click.echo("The output is incomplete: standard output was closed early.", err=True)
        return
    click.echo(f"Continue with --since {since}.", err=True)


def _pages(
    server: CliDeltaServer, gateway: str, client: str, since: int, most: int | None, every: float | None
) -> Iterator[CliDeltaPage]:
    """All existing pages, or at most `most` entries; with a poll interval, new pages too."""
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


def _page(server: CliDeltaServer, gateway: str, client: str, since: int, limit: int) -> CliDeltaPage:
    body = server.ask(sync_path(gateway, "pull"), {"since": since, "clientId": client, "limit": limit})
    try:
        facts = members(body.decode())
        entries = list(messages(facts["deltas"].encode()))
        return CliDeltaPage(entries, int(facts["serverHlc"].strip('"')), facts["hasMore"] == "true")
    except (ValueError, KeyError) as error:
        raise server.stranger() from error
