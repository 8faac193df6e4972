"""`semel jobs queue`: how many jobs of a queue may be worked on at once."""

from __future__ import annotations

import json

import click

from semel.cli.access import with_connection
from semel.cli.connection import Connection
from semel.cli.failures import not_semel
from semel.cli.jobs.asking import PATH, SURFACE, Facts, Server, named_path, with_retries
from semel.cli.output import printable, say, table, with_json

HEAD = ("QUEUE", "WAITING", "IN WORK", "LIMIT")


@click.group()
def queue() -> None:
    """Queues and their limits."""


@queue.command("list")
@with_retries
@with_json
@with_connection
def list_queues(connection: Connection, retries: int, as_json: bool) -> None:
    """List queues: jobs that wait, jobs in work, and how many may be."""
    queues = Server(connection, retries).get(f"{PATH}/queues").get("queues")
    if not isinstance(queues, list):
        raise not_semel(connection.address, SURFACE)
    if as_json:
        for one in queues:
            click.echo(json.dumps(one))
    elif not queues:
        click.echo("There are no queues yet.", err=True)
    else:
        for line in table(HEAD, [_row(one) for one in queues]):
            click.echo(line)


def _row(one: Facts) -> tuple[str, ...]:
    limit = one.get("max_inflight") or "none"
    return tuple(printable(str(cell)) for cell in (one.get("queue"), one.get("waiting"), one.get("inflight"), limit))


@queue.command("set")
@click.argument("name")
@click.argument("max_inflight", type=click.IntRange(min=0), metavar="LIMIT")
@with_retries
@with_json
@with_connection
def set_limit(connection: Connection, name: str, max_inflight: int, retries: int, as_json: bool) -> None:
    """Let at most LIMIT jobs of a queue be worked on at once; 0 lifts the limit. No lease that is out is ended."""
    told = Server(connection, retries).put(named_path("queues", name), {"max_inflight": max_inflight})
    limit = f"{name}: at most {max_inflight} in work at once" if max_inflight else f"{name} has no limit"
    say(as_json, told, printable(limit))


@queue.command("rm")
@click.argument("name")
@with_retries
@with_json
@with_connection
def remove_limit(connection: Connection, name: str, retries: int, as_json: bool) -> None:
    """Lift the limit of a queue."""
    told = Server(connection, retries).delete(named_path("queues", name))
    say(as_json, told, printable(f"{name} has no limit"))
