"""`semel jobs queue` and `semel jobs schedule`: limits of queues, and cron schedules."""

from __future__ import annotations

import json
import sys
from typing import BinaryIO

import click

from semel.cli.connection import CliConnection, not_semel
from semel.cli.help import HelpGroup
from semel.cli.jobs.options import MAX_TIMEOUT_SECONDS, CliJobDraftError, draft_job, with_place
from semel.cli.jobs.requests import PATH, SURFACE, CliJobServer, Facts, named_path
from semel.cli.output import printable, say, table, with_json
from semel.cli.requests import given, with_connection, with_retries
from semel.cli.source import STDIN, open_source, read_whole

QUEUE_HEAD = ("QUEUE", "WAITING", "IN WORK", "LIMIT", "TIMEOUT")


@click.group(cls=HelpGroup)
def queue() -> None:
    """Queues and their limits."""


@queue.command("list")
@with_retries
@with_json
@with_connection
def list_queues(connection: CliConnection, retries: int, as_json: bool) -> None:
    """List queues: waiting jobs, running jobs, and the limits of both."""
    queues = CliJobServer(connection, retries).get(f"{PATH}/queues").get("queues")
    if not isinstance(queues, list):
        raise not_semel(connection.address, SURFACE)
    if as_json:
        for one in queues:
            click.echo(json.dumps(one))
    elif not queues:
        click.echo("There are no queues yet.", err=True)
    else:
        for line in table(QUEUE_HEAD, [_queue_row(one) for one in queues]):
            click.echo(line)


def _queue_row(one: Facts) -> tuple[str, ...]:
    limit = one.get("max_inflight") or "none"
    cells = (one.get("queue"), one.get("waiting"), one.get("inflight"), limit, _queue_timeout(one) or "none")
    return tuple(printable(str(cell)) for cell in cells)


def _queue_timeout(one: Facts) -> str:
    """The time limit of a run; empty without one."""
    timeout_ms = one.get("default_timeout_ms")
    return f"{timeout_ms / 1_000:g} s" if timeout_ms else ""


def _queue_sentence(one: Facts) -> str:
    """The limits of a queue."""
    most, seconds = one.get("max_inflight"), _queue_timeout(one)
    limits = [f"at most {most} running at once"] if most else []
    limits += [f"a run may take {seconds}"] if seconds else []
    return printable(f"{one.get('queue')}: {', '.join(limits)}" if limits else f"{one.get('queue')} has no limit")


@queue.command("show")
@click.argument("name")
@with_retries
@with_json
@with_connection
def show_queue(connection: CliConnection, name: str, retries: int, as_json: bool) -> None:
    """Show a queue: its limits, and the numbers of waiting and running jobs."""
    told = CliJobServer(connection, retries).get(named_path("queues", name))
    counts = f"{told.get('waiting')} waiting, {told.get('inflight')} running"
    say(as_json, told, f"{_queue_sentence(told)}; {counts}")


@queue.command("set")
@click.argument("name")
@click.argument("max_inflight", type=click.IntRange(min=0), metavar="[LIMIT]", required=False)
@click.option(
    "--timeout",
    type=click.FloatRange(0, MAX_TIMEOUT_SECONDS),
    metavar="SECONDS",
    help="Time limit of a run in seconds, for jobs without their own; 0 removes it.",
)
@with_retries
@with_json
@with_connection
def set_limit(
    connection: CliConnection, name: str, max_inflight: int | None, timeout: float | None, retries: int, as_json: bool
) -> None:
    """Limit the concurrent jobs of a queue to LIMIT; 0 removes the limit. Running jobs are not interrupted. Options
    that are not given do not change.
    """
    if max_inflight is None and timeout is None:
        raise click.UsageError("Give LIMIT, --timeout, or both.")
    timeout_ms = None if timeout is None else round(timeout * 1_000)
    limits = given({"max_inflight": max_inflight, "default_timeout_ms": timeout_ms})
    told = CliJobServer(connection, retries).put(named_path("queues", name), limits)
    say(as_json, told, _queue_sentence(told))


@queue.command("rm")
@click.argument("name")
@with_retries
@with_json
@with_connection
def remove_limit(connection: CliConnection, name: str, retries: int, as_json: bool) -> None:
    """Remove the limits of a queue."""
    told = CliJobServer(connection, retries).delete(named_path("queues", name))
    say(as_json, told, printable(f"{name} has no limit"))


SCHEDULE_HEAD = ("NAME", "CRON", "KIND", "QUEUE", "LAST", "NEXT")


@click.group(cls=HelpGroup)
def schedule() -> None:
    """Cron schedules that create jobs."""


@schedule.command("set")
@click.argument("name")
@click.argument("cron")
@click.argument("kind")
@click.argument("params", required=False)
@click.option("--file", type=click.File("rb"), help="File with the params; - is standard input.")
@with_place
@click.option(
    "--catch-up",
    type=click.Choice(["last", "all", "none"]),
    help="Missed times for which a job is created; `last` by default.",
)
@click.option("--time-zone", help="IANA time zone of CRON, such as Europe/Berlin; UTC by default.")
@click.option("--paused", is_flag=True, help="Store the schedule, but create no jobs.")
@with_retries
@with_json
@with_connection
def set_schedule(
    connection: CliConnection,
    name: str,
    cron: str,
    kind: str,
    params: str | None,
    file: BinaryIO | None,
    queue: str | None,
    priority: int | str | None,
    max_attempts: int | None,
    catch_up: str | None,
    time_zone: str | None,
    paused: bool,
    retries: int,
    as_json: bool,
) -> None:
    """Create or change a schedule.

    CRON is `minute hour day month weekday`, or @hourly, @daily, @weekly or @monthly; PARAMS a JSON object, or -.
    """
    source = open_source(None if params == STDIN else params, file, from_stdin=params == STDIN)
    place = {"queue": queue, "priority": priority, "max_attempts": max_attempts, "catch_up": catch_up}
    place["time_zone"] = time_zone
    options = {"cron": cron, **given(place), "paused": paused}
    try:
        draft = draft_job(kind, b"{}" if source is None else read_whole(source), options, None)
    except CliJobDraftError as error:
        raise click.ClickException(str(error)) from None
    told = CliJobServer(connection, retries).put(named_path("schedules", name), draft.text)
    following = "It is paused." if paused else f"The next job will be created at {told.get('next_instant')}."
    say(as_json, told, printable(f"Scheduled {name}. {following}"))


@schedule.command("list")
@with_retries
@with_json
@with_connection
def list_schedules(connection: CliConnection, retries: int, as_json: bool) -> None:
    """List schedules with their last and next time."""
    schedules = CliJobServer(connection, retries).get(f"{PATH}/schedules").get("schedules")
    if not isinstance(schedules, list):
        raise not_semel(connection.address, SURFACE)
    if as_json:
        for one in schedules:
            click.echo(json.dumps(one))
    elif not schedules:
        click.echo("There are no schedules.", err=True)
    else:
        for line in table(SCHEDULE_HEAD, [_schedule_row(one) for one in schedules]):
            click.echo(line)


def _schedule_row(one: Facts) -> tuple[str, ...]:
    following = "paused" if one.get("paused") else one.get("next_instant") or "never"
    names = ("name", "cron", "kind", "queue")
    cells = (*(one.get(name) for name in names), one.get("last_instant") or "none yet", following)
    return tuple(printable(str(cell)) for cell in cells)


@schedule.command("rm")
@click.argument("name")
@click.option("--dry-run", is_flag=True, help="Print what would be deleted, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@with_retries
@with_json
@with_connection
def remove_schedule(
    connection: CliConnection, name: str, dry_run: bool, yes: bool, retries: int, as_json: bool
) -> None:
    """Delete a schedule; its jobs stay."""
    if not (yes or dry_run or sys.stdin.isatty()):
        raise click.UsageError(
            "A deleted schedule creates no more jobs: give --yes if standard input is not a terminal."
        )
    server = CliJobServer(connection, retries)
    if not yes or dry_run:
        one = server.get(named_path("schedules", name))
        about = printable(f"{name} ({one.get('cron')}: {one.get('kind')})")
        if dry_run:
            say(as_json, {"name": name, "removed": False, "dry_run": True}, f"Would remove {about}")
            return
        click.echo(about, err=True)
        click.confirm("Remove it?", abort=True, err=True)
    server.delete(named_path("schedules", name))
    say(as_json, {"name": name, "removed": True, "dry_run": False}, printable(f"Removed {name}"))
