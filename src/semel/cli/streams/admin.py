"""`semel streams create`, `semel streams ls` and `semel streams rm`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO
from urllib.parse import urlencode

import click

from semel.cli.connection import CliAnswer, CliConnection, not_semel
from semel.cli.output import printable, say, table, with_json
from semel.cli.requests import with_connection
from semel.cli.source import STDIN, open_source, read_whole
from semel.cli.streams.requests import describe, header_value, stream_path


@click.command()
@click.argument("name")
@click.argument("stdin", type=click.Choice([STDIN]), required=False, metavar="[-]")
@click.option("--type", "content_type", metavar="MIME", help="Media type, such as application/json.")
@click.option(
    "--ttl",
    "ttl_seconds",
    type=click.IntRange(min=0),
    metavar="SECONDS",
    help="Delete the stream after it was not used for this time, in seconds.",
)
@click.option("--expires-at", metavar="RFC3339", help="Delete the stream at this time, such as 2030-01-31T12:00:00Z.")
@click.option("--closed", is_flag=True, help="Create the stream closed: it has only the content given here.")
@click.option("--data", metavar="TEXT", help="First content of the stream.")
@click.option("--file", type=click.File("rb"), help="File with the first content; - is standard input.")
@with_json
@with_connection
def create(
    connection: CliConnection,
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
    """Create a stream, or confirm that it exists. With -, its first content is read from standard input."""
    source = open_source(data, file, from_stdin=stdin == STDIN)
    headers = _create_headers(content_type, ttl_seconds, expires_at, closed)
    answer = connection.request("PUT", stream_path(name), headers, None if source is None else read_whole(source))
    _report_created(answer, name, as_json)


def _create_headers(
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


def _report_created(answer: CliAnswer, name: str, as_json: bool) -> None:
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


PAGE = 1_000
HEAD = ("NAME", "TYPE", "NEXT OFFSET", "STATE", "EXPIRES")


@click.command()
@click.argument("prefix", default="")
@with_json
@with_connection
def ls(connection: CliConnection, prefix: str, as_json: bool) -> None:
    """List all streams, or those whose names start with PREFIX."""
    found = listed(connection, prefix)
    if as_json:
        for stream in found:
            click.echo(json.dumps(stream))
        return
    rows = sorted(_stream_row(stream) for stream in found)
    if not rows:
        click.echo(
            "There are no streams." if not prefix else f"No stream name starts with {printable(prefix)}.", err=True
        )
        return
    for line in table(HEAD, rows):
        click.echo(line)


def listed(connection: CliConnection, prefix: str) -> Iterator[dict[str, Any]]:
    """Descriptions of streams, in the server's order."""
    after: str | None = ""
    while after is not None:
        query = urlencode({"prefix": prefix, "after": after, "limit": PAGE}, errors="surrogateescape")
        try:
            page = json.loads(connection.request("GET", f"/v1/streams?{query}").body)
            streams, after = page["streams"], page["after"]
        except (ValueError, KeyError, TypeError) as error:
            raise not_semel(connection.address) from error
        yield from streams


def _stream_row(stream: dict[str, Any]) -> tuple[str, ...]:
    cells = (
        stream["name"],
        stream["content_type"],
        stream["next_offset"],
        _stream_state(stream),
        _stream_expiry(stream),
    )
    return tuple(printable(cell) for cell in cells)


def _stream_state(stream: dict[str, Any]) -> str:
    return "closed" if stream["closed"] else "open"


def _stream_expiry(stream: dict[str, Any]) -> str:
    if stream["ttl_seconds"] is not None:
        return f"{stream['ttl_seconds']} s after use"
    expires_at: str = stream["expires_at"] or "never"
    return expires_at


@click.command()
@click.argument("name")
@click.option("--dry-run", is_flag=True, help="Print what would be deleted, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@with_json
@with_connection
def rm(connection: CliConnection, name: str, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Delete a stream, its content and its keys."""
    if not (yes or dry_run or sys.stdin.isatty()):
        raise click.UsageError("Deleting cannot be undone: give --yes if standard input is not a terminal.")
    if not yes or dry_run:
        _show_streams(connection, name, dry_run, as_json)
    if dry_run:
        return
    if not yes:
        click.confirm("Delete it?", abort=True, err=True)
    connection.request("DELETE", stream_path(name))
    say(as_json, {"name": name, "deleted": True, "dry_run": False}, f"Deleted {printable(name)}")


def _show_streams(connection: CliConnection, name: str, dry_run: bool, as_json: bool) -> None:
    stream = describe(connection, name)
    state = "closed" if stream.is_closed else "open"
    about = f"{printable(name)} ({stream.content_type}, {state}, up to {stream.next_offset})"
    if not dry_run:
        click.echo(about, err=True)
        return
    facts = {
        "name": name,
        "deleted": False,
        "dry_run": True,
        "content_type": stream.content_type,
        "next_offset": stream.next_offset,
        "closed": stream.is_closed,
    }
    say(as_json, facts, f"Would delete {about}")
