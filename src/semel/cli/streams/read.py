"""`semel streams read` and `semel streams tail`: the content of a stream page by page, or live.

The server ends an event stream after a minute, and may restart; the next connection continues from the last offset.
Content is printed only after its offset has arrived, so a lost connection repeats nothing. Only a permanent refusal,
such as that of a deleted stream, ends `tail`.
"""

from __future__ import annotations

import json
import time
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from contextlib import suppress
from http.client import HTTPResponse
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import urlencode

import click

from semel.cli.connection import CliAnswer, CliConnection, RequestError, not_semel
from semel.cli.output import content_out, with_json
from semel.cli.requests import ServerSentEvent, parse_events, pause_seconds, with_connection
from semel.cli.source import messages
from semel.cli.streams.requests import describe, is_json, stream_path


def as_lines(array: bytes) -> bytes:
    """The messages of a JSON array, one per line."""
    return "".join(f"{message}\n" for message in messages(array)).encode()


def json_object(texts: Iterable[str], facts: dict[str, Any]) -> bytes:
    """`{"messages":[...], facts}`, with each message in its original text, so that no number changes."""
    rest = json.dumps(facts)[1:]
    return f'{{"messages": [{", ".join(texts)}], {rest}\n'.encode()


def raw_object(content: bytes, facts: dict[str, Any]) -> bytes:
    """`{"text":..., facts}`, or `"base64"` for what is not UTF-8."""
    try:
        shown = {"text": content.decode("utf-8")}
    except UnicodeDecodeError:
        shown = {"base64": b64encode(content).decode()}
    return json.dumps(shown | facts).encode() + b"\n"


class CliStreamPiece(NamedTuple):
    """Content, which may be empty, and the offset after it."""

    content: bytes
    next_offset: str
    is_closed: bool


def follow(connection: CliConnection, name: str, offset: str) -> Iterator[CliStreamPiece]:
    """Pieces from the offset on, until the stream is closed."""
    failures = 0
    while True:
        try:
            for piece in _one_connection(connection, name, offset):
                failures, offset = 0, piece.next_offset
                yield piece
                if piece.is_closed:
                    return
        except RequestError as error:
            if not error.may_pass:
                raise
            if failures == 0:
                click.echo(f"{error.message} Trying again.", err=True)
            failures += 1
        time.sleep(pause_seconds(failures))


def _one_connection(connection: CliConnection, name: str, offset: str) -> Iterator[CliStreamPiece]:
    path = f"{stream_path(name)}?{urlencode({'offset': offset, 'live': 'sse'})}"
    with connection.events(path) as response:
        encoded = response.getheader("Stream-SSE-Data-Encoding") == "base64"
        try:
            yield from pieces(parse_events(_lines(response)), is_base64=encoded)
        except (ValueError, KeyError, TypeError) as error:
            raise not_semel(connection.address) from error


def _lines(response: HTTPResponse) -> Iterator[bytes]:
    while line := response.readline():
        yield line


def pieces(events: Iterable[ServerSentEvent], *, is_base64: bool) -> Iterator[CliStreamPiece]:
    """Each control event with the data before it."""
    content = b""
    for event in events:
        if event.kind == "data":
            content += b64decode(event.data, validate=True) if is_base64 else event.data
        elif event.kind == "control":
            facts = json.loads(event.data)
            yield CliStreamPiece(content, facts["streamNextOffset"], facts.get("streamClosed") is True)
            content = b""


@click.command()
@click.argument("name")
@click.option(
    "--offset", default="-1", show_default=True, help="Offset to start at: -1 (the beginning), now, or a next offset."
)
@with_json
@with_connection
def read(connection: CliConnection, name: str, offset: str, as_json: bool) -> None:
    """Print a stream's content: JSON one message per line, other types byte for byte."""
    with content_out() as out:
        found = pages(connection, name, offset)
        if as_json:
            out.write(_object(list(found)))
        else:
            _copy(found, out)


def pages(connection: CliConnection, name: str, offset: str) -> Iterator[CliAnswer]:
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


def _copy(found: Iterator[CliAnswer], out: BinaryIO) -> None:
    for page in found:
        out.write(as_lines(page.body) if is_json(page.content_type) else page.body)


def _object(found: list[CliAnswer]) -> bytes:
    last = found[-1]
    facts = {"content_type": last.content_type, "next_offset": last.next_offset, "closed": last.is_closed}
    if is_json(last.content_type):
        return json_object((text for page in found for text in messages(page.body)), facts)
    return raw_object(b"".join(page.body for page in found), facts)


@click.command()
@click.argument("name")
@click.option("--offset", help="Offset to start at: now (the default), -1 (the beginning), or a next offset.")
@click.option("--from-start", is_flag=True, help="Start at the beginning, as --offset -1 does.")
@with_json
@with_connection
def tail(connection: CliConnection, name: str, offset: str | None, from_start: bool, as_json: bool) -> None:
    """Follow a stream live: JSON one message per line, other types as text.

    It reconnects from the last offset; Control-C ends it. The event stream turns a carriage return into a line feed;
    `read` prints the exact bytes.
    """
    if from_start and offset is not None:
        raise click.UsageError("Give --offset or --from-start, not both.")
    start = "-1" if from_start else "now" if offset is None else offset
    # Control-C is the usual way to stop, so it is not a failure.
    with suppress(KeyboardInterrupt), content_out() as out:
        content_type = describe(connection, name).content_type
        for piece in follow(connection, name, start):
            out.write(_shown(piece, content_type, as_json))
            out.flush()


def _shown(piece: CliStreamPiece, content_type: str, as_json: bool) -> bytes:
    content, next_offset, is_closed = piece
    if as_json and (content or is_closed):
        facts = {"content_type": content_type, "next_offset": next_offset, "closed": is_closed}
        return json_object(messages(content or b"[]"), facts) if is_json(content_type) else raw_object(content, facts)
    return as_lines(content) if content and is_json(content_type) else content
