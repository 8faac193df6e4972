"""Follows partitions with reconnects, each event once.

An event is known by its position, and the next connection goes on behind the last one. Only a definite refusal, such as
that of a token which has ended, is the end of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import click

from semel.cli.connection import Connection
from semel.cli.events.history import query_of
from semel.cli.events.members import members
from semel.cli.events.posting import PATH, SURFACE
from semel.cli.failures import RequestError, not_semel
from semel.cli.retries import pause_seconds
from semel.cli.streams.events import parse_events


class Followed(NamedTuple):
    """One event as the server gave it, and its position."""

    text: str
    committed_id: int


class Pruned(NamedTuple):
    """Events up to this position were removed by retention, perhaps some of the requested ones."""

    committed_id: int


def follow(connection: Connection, partitions: Sequence[str], since: int) -> Iterator[Followed | Pruned]:
    """Events behind a position, without an end; and where some of them are missing."""
    path = f"{PATH}?{query_of(partitions, since)}"
    headers = {"Accept": b"text/event-stream"}
    failures = 0
    while True:
        try:
            for event in _one_connection(connection, path, headers):
                failures = 0
                # What is gone is passed too: another connection would only tell of it again.
                headers["Last-Event-ID"] = str(event.committed_id).encode()
                yield event
        except RequestError as error:
            if not error.may_pass:
                raise
            if failures == 0:
                click.echo(f"{error.message} Trying again.", err=True)
            failures += 1
        time.sleep(pause_seconds(failures))


def _one_connection(connection: Connection, path: str, headers: dict[str, bytes]) -> Iterator[Followed | Pruned]:
    with connection.events(path, headers, SURFACE) as response:
        try:
            for event in parse_events(iter(response.readline, b"")):
                text = event.data.strip().decode()
                if event.kind == "reset":
                    raise _reset(int(members(text)["agreed_committed_id"]))
                if event.kind == "pruned":
                    yield Pruned(int(members(text)["pruned_to_committed_id"]))
                else:
                    yield Followed(text, int(members(text)["committed_id"]))
        except (ValueError, KeyError) as error:
            raise not_semel(connection.address, SURFACE) from error


def _reset(agreed_id: int) -> click.ClickException:
    """The printed events belong to a lost history, so a person has to decide how to continue."""
    lost = "Events were lost when a backup was restored; some that were printed may be among them."
    return click.ClickException(f"{lost} Both histories agree up to {agreed_id}: go on with --since {agreed_id}.")
