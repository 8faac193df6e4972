"""`semel jobs schedule`: cron schedules that make jobs."""

from __future__ import annotations

import json
import sys
from typing import BinaryIO

import click

from semel.cli.access import with_connection
from semel.cli.connection import Connection
from semel.cli.failures import not_semel
from semel.cli.jobs.asking import PATH, SURFACE, Facts, Server, named_path, with_retries
from semel.cli.jobs.drafts import DraftError, draft_job
from semel.cli.jobs.options import given, with_place
from semel.cli.output import printable, say, table, with_json
from semel.cli.streams.source import STDIN, open_source, read_whole

HEAD = ("NAME", "CRON", "KIND", "QUEUE", "LAST", "NEXT")


@click.group()
def schedule() -> None:
    """Cron schedules that make jobs."""


@schedule.command("set")
@click.argument("name")
@click.argument("cron")
@click.argument("kind")
@click.argument("params", required=False)
@click.option("--file", type=click.File("rb"), help="File with the params; - is standard input.")
@with_place
@click.option(
    "--catch-up", type=click.Choice(["last", "all", "none"]), help="Which missed times make a job; `last` by default."
)
@click.option("--time-zone", help="IANA time zone of CRON, such as Europe/Berlin; UTC by default.")
@click.option("--paused", is_flag=True, help="Store the schedule, but make no jobs.")
@with_retries
@with_json
@with_connection
def set_schedule(
    connection: Connection,
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
    """Make a schedule, or change it.

    CRON is `minute hour day month weekday`, or @hourly, @daily, @weekly or @monthly; PARAMS a JSON object, or -.
    """
    source = open_source(None if params == STDIN else params, file, from_stdin=params == STDIN)
    place = {"queue": queue, "priority": priority, "max_attempts": max_attempts, "catch_up": catch_up}
    place["time_zone"] = time_zone
    options = {"cron": cron, **given(place), "paused": paused}
    try:
        draft = draft_job(kind, b"{}" if source is None else read_whole(source), options, None)
    except DraftError as error:
        raise click.ClickException(str(error)) from None
    told = Server(connection, retries).put(named_path("schedules", name), draft.text)
    following = "It is paused." if paused else f"The next job comes at {told.get('next_instant')}."
    say(as_json, told, printable(f"Scheduled {name}. {following}"))


@schedule.command("list")
@with_retries
@with_json
@with_connection
def list_schedules(connection: Connection, retries: int, as_json: bool) -> None:
    """List schedules, with the last and the next time of each."""
    schedules = Server(connection, retries).get(f"{PATH}/schedules").get("schedules")
    if not isinstance(schedules, list):
        raise not_semel(connection.address, SURFACE)
    if as_json:
        for one in schedules:
            click.echo(json.dumps(one))
    elif not schedules:
        click.echo("There are no schedules.", err=True)
    else:
        for line in table(HEAD, [_row(one) for one in schedules]):
            click.echo(line)


def _row(one: Facts) -> tuple[str, ...]:
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
def remove_schedule(connection: Connection, name: str, dry_run: bool, yes: bool, retries: int, as_json: bool) -> None:
    """Remove a schedule; the jobs that it made stay."""
    if not (yes or dry_run or sys.stdin.isatty()):
        raise click.UsageError("A deleted schedule makes no more jobs: say --yes if standard input is not a terminal.")
    server = Server(connection, retries)
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
