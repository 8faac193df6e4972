"""`semel events tail`: follow events as they are committed, until interrupted."""

from __future__ import annotations

import sys
from contextlib import suppress

import click

from semel.cli.access import with_connection
from semel.cli.connection import Connection
from semel.cli.events.following import Pruned, follow
from semel.cli.events.history import last_position
from semel.cli.output import content_out

INCOMPLETE = 4
"""The exit code of a strict tail that cannot have everything."""


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
@click.option("--strict", is_flag=True, help="Exit with code 4 if events were already removed by retention.")
@with_connection
def tail(
    connection: Connection, partitions: tuple[str, ...], since: int | None, from_start: bool, strict: bool
) -> None:
    """Follow partitions live, one JSON object a line.

    It reconnects behind the last event; Control-C ends it. Events that were removed by retention are reported on
    standard error.
    """
    if from_start and since is not None:
        raise click.UsageError("Give --since or --from-start, not both.")
    # Control-C is the usual way to stop following, so it is no failure.
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
