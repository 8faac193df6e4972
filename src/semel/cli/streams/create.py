"""`semel streams create`: create a stream, or confirm that it exists; the answer says which."""

from __future__ import annotations

from typing import BinaryIO

import click

from semel.cli.access import with_connection
from semel.cli.connection import Answer, Connection
from semel.cli.output import printable, say, with_json
from semel.cli.streams.resource import header_value, stream_path
from semel.cli.streams.source import STDIN, open_source, read_whole


@click.command()
@click.argument("name")
@click.argument("stdin", type=click.Choice([STDIN]), required=False, metavar="[-]")
@click.option("--type", "content_type", metavar="MIME", help="Media type, such as application/json.")
@click.option(
    "--ttl",
    "ttl_seconds",
    type=click.IntRange(min=0),
    metavar="SECONDS",
    help="Remove the stream when it was not used for this time, in seconds.",
)
@click.option("--expires-at", metavar="RFC3339", help="Remove the stream at this time, such as 2030-01-31T12:00:00Z.")
@click.option("--closed", is_flag=True, help="Create it closed: no appends follow the content given here.")
@click.option("--data", metavar="TEXT", help="First content of the stream.")
@click.option("--file", type=click.File("rb"), help="File with the first content; - is standard input.")
@with_json
@with_connection
def create(
    connection: Connection,
    name: str,
    stdin: str | None,
    content_type: str | None,
    ttl_seconds: int | None,
    expires_at: str | None,
    closed: bool,
    data: str | None,
    file: BinaryIO | None,
    as_json: bool,
) -> None:
    """Create a stream, or confirm that it is there. With -, its first content comes from standard input."""
    source = open_source(data, file, from_stdin=stdin == STDIN)
    headers = _headers(content_type, ttl_seconds, expires_at, closed)
    answer = connection.request("PUT", stream_path(name), headers, None if source is None else read_whole(source))
    _report(answer, name, as_json)


def _headers(
    content_type: str | None, ttl_seconds: int | None, expires_at: str | None, closed: bool
) -> dict[str, bytes]:
    headers = {"Stream-Closed": b"true"} if closed else {}
    if content_type is not None:
        headers["Content-Type"] = header_value("--type", content_type)
    if ttl_seconds is not None:
        headers["Stream-TTL"] = str(ttl_seconds).encode()
    if expires_at is not None:
        headers["Stream-Expires-At"] = header_value("--expires-at", expires_at)
    return headers


def _report(answer: Answer, name: str, as_json: bool) -> None:
    is_new = answer.status == 201
    facts = {
        "name": name,
        "created": is_new,
        "content_type": answer.content_type,
        "next_offset": answer.next_offset,
        "closed": answer.is_closed,
    }
    outcome = "Created" if is_new else "Already there:"
    closed = ", closed" if answer.is_closed else ""
    say(as_json, facts, f"{outcome} {printable(name)} ({answer.content_type}, at {answer.next_offset}{closed})")
