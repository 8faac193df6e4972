"""`semel jobs queue`: limits of a queue: running jobs, and the time of a run."""

from __future__ import annotations

import json

import click

from semel.cli.access import with_connection
from semel.cli.connection import Connection
from semel.cli.failures import not_semel
from semel.cli.jobs.asking import PATH, SURFACE, Facts, Server, named_path, with_retries
from semel.cli.jobs.options import MAX_TIMEOUT_SECONDS, given
from semel.cli.output import printable, say, table, with_json

HEAD = ("QUEUE", "WAITING", "IN WORK", "LIMIT", "TIMEOUT")


@click.group()
def queue() -> None:
    """Queues and their limits."""


@queue.command("list")
@with_retries
@with_json
@with_connection
def list_queues(connection: Connection, retries: int, as_json: bool) -> None:
    """List queues: waiting jobs, running jobs, and the limits of both."""
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
    cells = (one.get("queue"), one.get("waiting"), one.get("inflight"), limit, _seconds(one) or "none")
    return tuple(printable(str(cell)) for cell in cells)


def _seconds(one: Facts) -> str:
    """The time limit of a run; empty without one."""
    timeout_ms = one.get("default_timeout_ms")
    return f"{timeout_ms / 1_000:g} s" if timeout_ms else ""


def _sentence(one: Facts) -> str:
    """The limits of a queue."""
    most, seconds = one.get("max_inflight"), _seconds(one)
    limits = [f"at most {most} in work at once"] if most else []
    limits += [f"a run may take {seconds}"] if seconds else []
    return printable(f"{one.get('queue')}: {', '.join(limits)}" if limits else f"{one.get('queue')} has no limit")


@queue.command("show")
@click.argument("name")
@with_retries
@with_json
@with_connection
def show_queue(connection: Connection, name: str, retries: int, as_json: bool) -> None:
    """Show a queue: its limits, and the numbers of waiting and running jobs."""
    told = Server(connection, retries).get(named_path("queues", name))
    counts = f"{told.get('waiting')} waiting, {told.get('inflight')} in work"
    say(as_json, told, f"{_sentence(told)}; {counts}")


@queue.command("set")
@click.argument("name")
@click.argument("max_inflight", type=click.IntRange(min=0), metavar="[LIMIT]", required=False)
@click.option(
    "--timeout",
    type=click.FloatRange(0, MAX_TIMEOUT_SECONDS),
    metavar="SECONDS",
    help="Time limit of a run in seconds, for jobs without a limit of their own; 0 removes it.",
)
@with_retries
@with_json
@with_connection
def set_limit(
    connection: Connection, name: str, max_inflight: int | None, timeout: float | None, retries: int, as_json: bool
) -> None:
    """Let at most LIMIT jobs of a queue be worked on at once; 0 removes the limit. Current leases are not ended.

    Options that are not given stay unchanged.
    """
    if max_inflight is None and timeout is None:
        raise click.UsageError("Give LIMIT, --timeout, or both.")
    timeout_ms = None if timeout is None else round(timeout * 1_000)
    limits = given({"max_inflight": max_inflight, "default_timeout_ms": timeout_ms})
    told = Server(connection, retries).put(named_path("queues", name), limits)
    say(as_json, told, _sentence(told))


@queue.command("rm")
@click.argument("name")
@with_retries
@with_json
@with_connection
def remove_limit(connection: Connection, name: str, retries: int, as_json: bool) -> None:
    """Remove the limits of a queue."""
    told = Server(connection, retries).delete(named_path("queues", name))
    say(as_json, told, printable(f"{name} has no limit"))
