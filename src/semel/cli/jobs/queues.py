"""`semel jobs queue` and `semel jobs schedule`: limits of queues, and cron schedules."""

from __future__ import annotations

import re
import sys
from typing import Annotated, Any, BinaryIO, Literal

import click

from semel.cli.command import RETRIES, Arg, DryRun, Json, MaybeArg, Opt, Positional, Retries, Yes, command, group
from semel.cli.jobs.options import MAX_TIMEOUT_SECONDS, MaxAttempts, Priority, Queue, jobs
from semel.cli.jobs.output import Facts
from semel.cli.jobs.read import cells, print_all
from semel.cli.output import printable, say
from semel.cli.source import STDIN, open_source, read_whole
from semel.client import Client, QueueInfo, QueueRate
from semel.client.jobs.values import CatchUp

queue = group("queue", "Queues and their limits.")
schedule = group("schedule", "Cron schedules that create jobs.")
jobs.add_command(queue)
jobs.add_command(schedule)

QUEUE_HEAD = ("QUEUE", "WAITING", "IN WORK", "LIMIT", "TIMEOUT", "RATE")


class RateType(click.ParamType[QueueRate | Literal[0]]):
    """A rate limit: COUNT, COUNT/SECONDS, or 0 for none."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> QueueRate | Literal[0]:
        """The rate, or a usage error."""
        found = re.fullmatch(r"([0-9]{1,9})(?:/([0-9]{1,9}(?:\.[0-9]{1,3})?))?", str(value))
        if found is None:
            self.fail("a rate must be COUNT or COUNT/SECONDS, such as 10/60, or 0 for no limit.", param, ctx)
        return QueueRate(int(found[1]), float(found[2] or 1)) if int(found[1]) else 0


@command(queue, "list")
def list_queues(client: Client, retries: Retries = RETRIES, as_json: Json = False) -> None:
    """List queues: waiting jobs, running jobs, and their limits."""
    found = {one.name: one for one in client.jobs.queues()}
    listed = (one.facts for one in found.values())
    print_all(listed, as_json, QUEUE_HEAD, lambda one: _queue_row(found[one["queue"]]), "There are no queues yet.")


def _queue_row(one: QueueInfo) -> tuple[str, ...]:
    timeout = f"{one.default_timeout:g} s" if one.default_timeout else "none"
    rate = "none" if one.rate is None else f"{one.rate.count} in {one.rate.per:g} s"
    return cells(one.name, one.waiting, one.inflight, one.max_inflight or "none", timeout, rate)


def _queue_sentence(one: QueueInfo) -> str:
    """The limits of a queue."""
    limits = [f"at most {one.max_inflight} running at once"] if one.max_inflight else []
    limits += [f"a run may take {one.default_timeout:g} s"] if one.default_timeout else []
    limits += [f"at most {one.rate.count} start in {one.rate.per:g} s"] if one.rate else []
    return printable(f"{one.name}: {', '.join(limits)}" if limits else f"{one.name} has no limit")


@command(queue, "show")
def show_queue(client: Client, name: Arg, retries: Retries = RETRIES, as_json: Json = False) -> None:
    """Show a queue: its limits, and the numbers of waiting and running jobs."""
    one = client.jobs.queue(name)
    say(as_json, dict(one.facts), f"{_queue_sentence(one)}; {one.waiting} waiting, {one.inflight} running")


@command(queue, "set")
def set_limit(
    client: Client,
    name: Arg,
    max_inflight: Annotated[int | None, Positional("[LIMIT]", click.IntRange(min=0))] = None,
    timeout: Annotated[
        float | None,
        Opt(
            "Time limit of a run in seconds, for jobs without their own; 0 removes it.",
            metavar="SECONDS",
            type=click.FloatRange(0, MAX_TIMEOUT_SECONDS),
        ),
    ] = None,
    rate_limit: Annotated[
        QueueRate | None,
        Opt(
            "At most COUNT jobs start in SECONDS, 1 by default; 0 removes it.", metavar="COUNT/SECONDS", type=RateType()
        ),
    ] = None,
    retries: Retries = RETRIES,
    as_json: Json = False,
) -> None:
    """Limit the concurrent jobs of a queue to LIMIT; 0 removes the limit. Running jobs are not interrupted. Options
    that are not given do not change.
    """
    if max_inflight is None and timeout is None and rate_limit is None:
        raise click.UsageError("Give LIMIT, --timeout or --rate-limit.")
    one = client.jobs.set_queue(name, max_inflight=max_inflight, default_timeout=timeout, rate_limit=rate_limit)
    say(as_json, dict(one.facts), _queue_sentence(one))


@command(queue, "rm")
def remove_limit(client: Client, name: Arg, retries: Retries = RETRIES, as_json: Json = False) -> None:
    """Remove the limits of a queue."""
    one = client.jobs.reset_queue(name)
    say(as_json, dict(one.facts), printable(f"{name} has no limit"))


SCHEDULE_HEAD = ("NAME", "CRON", "KIND", "QUEUE", "LAST", "NEXT")


@command(schedule, "set")
def set_schedule(
    client: Client,
    name: Arg,
    cron: Arg,
    kind: Arg,
    params: MaybeArg = None,
    file: Annotated[BinaryIO | None, Opt("File with the params; - is standard input.")] = None,
    queue: Queue = None,
    priority: Priority = None,
    max_attempts: MaxAttempts = None,
    catch_up: Annotated[CatchUp | None, Opt("Missed times for which a job is created; `last` by default.")] = None,
    time_zone: Annotated[str | None, Opt("IANA time zone of CRON, such as Europe/Berlin; UTC by default.")] = None,
    paused: Annotated[bool, Opt("Store the schedule, but create no jobs.")] = False,
    retries: Retries = RETRIES,
    as_json: Json = False,
) -> None:
    """Create or change a schedule.

    CRON is `minute hour day month weekday`, or @hourly, @daily, @weekly or @monthly; PARAMS a JSON object, or -.
    """
    source = open_source(None if params == STDIN else params, file, from_stdin=params == STDIN)
    told = client.jobs.set_schedule(
        name,
        cron,
        kind,
        None if source is None else read_whole(source),
        time_zone=time_zone,
        queue=queue,
        priority=priority,
        max_attempts=max_attempts,
        catch_up=catch_up,
        paused=paused,
    ).facts
    following = "It is paused." if paused else f"The next job will be created at {told['next_instant']}."
    say(as_json, dict(told), printable(f"Scheduled {name}. {following}"))


@command(schedule, "list")
def list_schedules(client: Client, retries: Retries = RETRIES, as_json: Json = False) -> None:
    """List schedules with their last and next time."""
    found = (one.facts for one in client.jobs.schedules())
    print_all(found, as_json, SCHEDULE_HEAD, _schedule_row, "There are no schedules.")


def _schedule_row(one: Facts) -> tuple[str, ...]:
    following = "paused" if one["paused"] else one["next_instant"] or "never"
    last = one["last_instant"] or "none yet"
    return cells(*(one[name] for name in ("name", "cron", "kind", "queue")), last, following)


@command(schedule, "rm")
def remove_schedule(
    client: Client,
    name: Arg,
    dry_run: DryRun = False,
    yes: Yes = False,
    retries: Retries = RETRIES,
    as_json: Json = False,
) -> None:
    """Delete a schedule; its jobs stay."""
    if not (yes or dry_run or sys.stdin.isatty()):
        raise click.UsageError(
            "A deleted schedule creates no more jobs: give --yes if standard input is not a terminal."
        )
    if not yes or dry_run:
        one = client.jobs.schedule(name)
        about = printable(f"{name} ({one.cron}: {one.kind})")
        if dry_run:
            say(as_json, {"name": name, "removed": False, "dry_run": True}, f"Would remove {about}")
            return
        click.echo(about, err=True)
        click.confirm("Remove it?", abort=True, err=True)
    client.jobs.delete_schedule(name)
    say(as_json, {"name": name, "removed": True, "dry_run": False}, printable(f"Removed {name}"))
