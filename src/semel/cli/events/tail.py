"""`semel events tail`: events as they are committed, until the reader has had enough."""

from __future__ import annotations

from contextlib import suppress

import click

from semel.cli.access import with_connection
from semel.cli.connection import Connection
from semel.cli.events.following import follow
from semel.cli.events.history import last_position
from semel.cli.output import content_out


@click.command()
@click.option("--partition", "partitions", multiple=True, required=True, metavar="NAME", help="May be repeated.")
@click.option("--since", type=click.IntRange(min=0), help="Begin behind this committed_id; else with what comes now.")
@click.option("--from-start", is_flag=True, help="Begin with all that is there, as --since 0 does.")
@with_connection
def tail(connection: Connection, partitions: tuple[str, ...], since: int | None, from_start: bool) -> None:
    """Follow partitions live, one JSON object a line.

    Lost connections are made again behind the last event; Control-C ends it.
    """
    if from_start and since is not None:
        raise click.UsageError("Give --since or --from-start, not both.")
    # Control-C is the usual way to stop following, so it is no failure.
    with suppress(KeyboardInterrupt), content_out() as out:
        if since is None:
            since = 0 if from_start else last_position(connection, partitions)
        for event in follow(connection, partitions, since):
            out.write(f"{event.text}\n".encode())
            out.flush()
