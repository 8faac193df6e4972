"""Follows a stream with reconnects, each piece of content once.

The server ends an event stream after a minute, and may be restarted; then the next connection goes on from the last
offset heard. Content is handed on only together with the offset behind it, so a connection cut between the two repeats
nothing. Only a definite refusal, such as that of a deleted stream, ends it early.
"""

from __future__ import annotations

import json
import time
from base64 import b64decode
from collections.abc import Iterable, Iterator
from http.client import HTTPResponse
from typing import NamedTuple
from urllib.parse import urlencode

import click

from semel.cli.connection import Connection
from semel.cli.failures import RequestError, not_semel
from semel.cli.retries import pause_seconds
from semel.cli.streams.events import Event, parse_events
from semel.cli.streams.resource import stream_path


class Piece(NamedTuple):
    """Content, which may be empty, and the offset behind it."""

    content: bytes
    next_offset: str
    is_closed: bool


def follow(connection: Connection, name: str, offset: str) -> Iterator[Piece]:
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


def _one_connection(connection: Connection, name: str, offset: str) -> Iterator[Piece]:
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


def pieces(events: Iterable[Event], *, is_base64: bool) -> Iterator[Piece]:
    """Each control event with the data before it."""
    content = b""
    for event in events:
        if event.kind == "data":
            content += b64decode(event.data, validate=True) if is_base64 else event.data
        elif event.kind == "control":
            facts = json.loads(event.data)
            yield Piece(content, facts["streamNextOffset"], facts.get("streamClosed") is True)
            content = b""
