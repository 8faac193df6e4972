"""`semel streams tail`: follow a stream until it is closed or interrupted."""

from __future__ import annotations

from contextlib import suppress

import click

from semel.cli.access import with_connection
from semel.cli.connection import Connection
from semel.cli.output import content_out, with_json
from semel.cli.streams.content import as_lines, json_object, raw_object
from semel.cli.streams.following import Piece, follow
from semel.cli.streams.messages import messages
from semel.cli.streams.resource import describe, is_json


@click.command()
@click.argument("name")
@click.option("--offset", help="Offset to start at: now (the default), -1 (the beginning), or a next offset.")
@click.option("--from-start", is_flag=True, help="Start at the beginning, as --offset -1 does.")
@with_json
@with_connection
def tail(connection: Connection, name: str, offset: str | None, from_start: bool, as_json: bool) -> None:
    """Follow a stream live: JSON one message a line, any other type as it is.

    It reconnects from the last offset; Control-C ends it. Text travels in lines here, so a carriage
    return arrives as a line feed; `read` gives the exact bytes.
    """
    if from_start and offset is not None:
        raise click.UsageError("Give --offset or --from-start, not both.")
    start = "-1" if from_start else "now" if offset is None else offset
    # Control-C is the usual way to stop following, so it is no failure.
    with suppress(KeyboardInterrupt), content_out() as out:
        content_type = describe(connection, name).content_type
        for piece in follow(connection, name, start):
            out.write(_shown(piece, content_type, as_json))
            out.flush()


def _shown(piece: Piece, content_type: str, as_json: bool) -> bytes:
    content, next_offset, is_closed = piece
    if as_json and (content or is_closed):
        facts = {"content_type": content_type, "next_offset": next_offset, "closed": is_closed}
        return json_object(messages(content or b"[]"), facts) if is_json(content_type) else raw_object(content, facts)
    return as_lines(content) if content and is_json(content_type) else content
