"""`semel events read`: the history of some partitions, one event a line."""

from __future__ import annotations

import click

from semel.cli.access import with_connection
from semel.cli.connection import Connection
from semel.cli.events.history import pages
from semel.cli.output import content_out
from semel.contracts.events.limits import PAGE_DEFAULT


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
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help=f"Limit of events to print.  [{PAGE_DEFAULT}]")
@click.option("--all", "is_all", is_flag=True, help="Print all events that exist at the start.")
@with_connection
def read(connection: Connection, partitions: tuple[str, ...], since: int, limit: int | None, is_all: bool) -> None:
    """Print events in their order, one JSON object a line."""
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
            click.echo(f"There are more: go on with --since {page.next_since}, or give --all.", err=True)
