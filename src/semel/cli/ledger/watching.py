"""Follows a chain with reconnects, each block once and in order.

When a connection ends, by a restart of the server for example, the next one goes on behind the last height heard.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import click

from semel.cli.connection import Connection
from semel.cli.failures import RequestError, not_semel
from semel.cli.ledger.asking import SURFACE, Facts, encoded
from semel.cli.ledger.places import Scope
from semel.cli.retries import pause_seconds
from semel.cli.streams.events import parse_events


def follow(connection: Connection, place: Scope, height: int) -> Iterator[Facts]:
    """The announcements of blocks from a height on, without end."""
    failures = 0
    while True:
        try:
            for block in _one_connection(connection, place, height):
                failures, height = 0, height + 1
                yield block
        except RequestError as error:
            if not error.may_pass:
                raise
            if failures == 0:
                click.echo(f"{error.message} Trying again.", err=True)
            failures += 1
        time.sleep(pause_seconds(failures))


def _one_connection(connection: Connection, place: Scope, height: int) -> Iterator[Facts]:
    path = f"{place.path}/blocks:watch?{encoded({'from': height})}"
    with connection.events(path, surface=SURFACE) as response:
        for event in parse_events(iter(response.readline, b"")):
            try:
                block = json.loads(event.data)
                is_next = int(block["height"]) == height
            except (ValueError, KeyError, TypeError) as error:
                raise not_semel(connection.address, SURFACE) from error
            if not is_next:
                raise click.ClickException(f"The server told block {int(block['height'])} where {height} was next.")
            height += 1
            yield block
