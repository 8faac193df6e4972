"""`semel streams read`: print a stream from an offset to its tail, page by page (pagination)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO
from urllib.parse import urlencode

import click

from semel.cli.access import with_connection
from semel.cli.connection import Answer, Connection
from semel.cli.failures import not_semel
from semel.cli.output import content_out, with_json
from semel.cli.streams.content import as_lines, json_object, raw_object
from semel.cli.streams.messages import messages
from semel.cli.streams.resource import is_json, stream_path


@click.command()
@click.argument("name")
@click.option(
    "--offset", default="-1", show_default=True, help="Offset to start at: -1 (the beginning), now, or a next offset."
)
@with_json
@with_connection
def read(connection: Connection, name: str, offset: str, as_json: bool) -> None:
    """Print a stream's content: JSON one message a line, any other type as it is."""
    with content_out() as out:
        found = pages(connection, name, offset)
        if as_json:
            out.write(_object(list(found)))
        else:
            _copy(found, out)


def pages(connection: Connection, name: str, offset: str) -> Iterator[Answer]:
    """Answers from the offset on, until one reaches the tail."""
    while True:
        page = connection.request("GET", f"{stream_path(name)}?{urlencode({'offset': offset})}")
        reached = page.next_offset
        yield page
        if page.is_true("Stream-Up-To-Date"):
            return
        if reached == offset:
            raise not_semel(connection.address)
        offset = reached


def _copy(found: Iterator[Answer], out: BinaryIO) -> None:
    for page in found:
        out.write(as_lines(page.body) if is_json(page.content_type) else page.body)


def _object(found: list[Answer]) -> bytes:
    last = found[-1]
    facts = {"content_type": last.content_type, "next_offset": last.next_offset, "closed": last.is_closed}
    if is_json(last.content_type):
        return json_object((text for page in found for text in messages(page.body)), facts)
    return raw_object(b"".join(page.body for page in found), facts)
