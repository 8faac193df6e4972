"""`semel streams ls`: list the streams that this caller may read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import click

from semel.cli.access import with_connection
from semel.cli.connection import Connection
from semel.cli.failures import not_semel
from semel.cli.output import printable, table, with_json

PAGE = 1_000
HEAD = ("NAME", "TYPE", "NEXT OFFSET", "STATE", "EXPIRES")


@click.command()
@click.argument("prefix", default="")
@with_json
@with_connection
def ls(connection: Connection, prefix: str, as_json: bool) -> None:
    """List streams, all of them or those whose names begin with PREFIX."""
    found = listed(connection, prefix)
    if as_json:
        for stream in found:
            click.echo(json.dumps(stream))
        return
    rows = sorted(_row(stream) for stream in found)
    if not rows:
        click.echo("There are no streams." if not prefix else f"No stream begins with {printable(prefix)}.", err=True)
        return
    for line in table(HEAD, rows):
        click.echo(line)


def listed(connection: Connection, prefix: str) -> Iterator[dict[str, Any]]:
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


def _row(stream: dict[str, Any]) -> tuple[str, ...]:
    cells = (stream["name"], stream["content_type"], stream["next_offset"], _state(stream), _expiry(stream))
    return tuple(printable(cell) for cell in cells)


def _state(stream: dict[str, Any]) -> str:
    return "closed" if stream["closed"] else "open"


def _expiry(stream: dict[str, Any]) -> str:
    if stream["ttl_seconds"] is not None:
        return f"{stream['ttl_seconds']} s after use"
    expires_at: str = stream["expires_at"] or "never"
    return expires_at
