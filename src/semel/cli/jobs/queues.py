"""`semel jobs queue` and `semel jobs schedule`: limits of queues, and cron schedules."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, BinaryIO, Literal

import click

from semel.cli.command import Arg, MaybeArg, Opt, OptionSet, ParsedType, Positional, Retrying, Sure, command, group
from semel.cli.jobs.options import TIMEOUT, MaxAttempts, Priority, Queue, jobs
from semel.cli.output import Listing, Said
from semel.cli.source import STDIN, open_source, read_whole
from semel.client import QueueInfo, QueueRate, ScheduleInfo
from semel.client.jobs.values import CatchUp

queue = group("queue", "Queues and their limits.")
schedule = group("schedule", "Cron schedules that create jobs.")
jobs.add_command(queue)
jobs.add_command(schedule)

QUEUE_HEAD = ("QUEUE", "WAITING", "IN WORK", "LIMIT", "TIMEOUT", "RATE")


def _rate(text: str) -> QueueRate | Literal[0]:
    """COUNT, COUNT/SECONDS, or 0 for no limit."""
    found = re.fullmatch(r"([0-9]{1,9})(?:/([0-9]{1,9}(?:\.[0-9]{1,3})?))?", text)
    if found is None:
        raise ValueError("a rate must be COUNT or COUNT/SECONDS, such as 10/60, or 0 for no limit.")
    return QueueRate(int(found[1]), float(found[2] or 1)) if int(found[1]) else 0


RATE = ParsedType("rate", _rate)


@command(queue, "list")
def list_queues(client: Retrying) -> Listing[QueueInfo]:
    """List queues: waiting jobs, running jobs, and their limits."""
    return Listing(client.jobs.queues(), QUEUE_HEAD, _queue_row, "There are no queues yet.")


def _queue_row(one: QueueInfo) -> tuple[object, ...]:
    timeout = f"{one.default_timeout:g} s" if one.default_timeout else "none"
    rate = "none" if one.rate is None else f"{one.rate.count} in {one.rate.per:g} s"
    return one.name, one.waiting, one.inflight, one.max_inflight or "none", timeout, rate


def _queue_sentence(one: QueueInfo) -> str:
    """The limits of a queue."""
    limits = [f"at most {one.max_inflight} running at once"] if one.max_inflight else []
    limits += [f"a run may take {one.default_timeout:g} s"] if one.default_timeout else []
    limits += [f"at most {one.rate.count} start in {one.rate.per:g} s"] if one.rate else []
    return f"{one.name}: {', '.join(limits)}" if limits else f"{one.name} has no limit"


@command(queue, "show")
def show_queue(client: Retrying, name: Arg) -> Said:
    """Show a queue: its limits, and the numbers of waiting and running jobs."""
    one = client.jobs.queue(name)
    return Said(one.facts, f"{_queue_sentence(one)}; {one.waiting} waiting, {one.inflight} running")


@command(queue, "set")
def set_limit(
    client: Retrying,
    name: Arg,
    max_inflight: Annotated[int | None, Positional("[LIMIT]", click.IntRange(min=0))] = None,
    timeout: Annotated[
        float | None,
        Opt("Time limit of a run in seconds, for jobs without their own; 0 removes it.", "", "SECONDS", TIMEOUT),
    ] = None,
    rate_limit: Annotated[
        QueueRate | None,
        Opt("At most COUNT jobs start in SECONDS, 1 by default; 0 removes it.", "", "COUNT/SECONDS", RATE),
    ] = None,
) -> Said:
    """Limit the concurrent jobs of a queue to LIMIT; 0 removes the limit. Running jobs are not interrupted. Options
    that are not given do not change.
    """
    if max_inflight is None and timeout is None and rate_limit is None:
        raise click.UsageError("Give LIMIT, --timeout or --rate-limit.")
    one = client.jobs.set_queue(name, max_inflight=max_inflight, default_timeout=timeout, rate_limit=rate_limit)
    return Said(one.facts, _queue_sentence(one))


@command(queue, "rm")
def remove_limit(client: Retrying, name: Arg) -> Said:
    """Remove the limits of a queue."""
    return Said(client.jobs.reset_queue(name).facts, f"{name} has no limit")


SCHEDULE_HEAD = ("NAME", "CRON", "KIND", "QUEUE", "LAST", "NEXT")


@dataclass(frozen=True)
class ScheduleSettings(OptionSet):
    """The settings of a schedule, by the names that the client gives them."""

    queue: Queue = None
    priority: Priority = None
    max_attempts: MaxAttempts = None
    catch_up: Annotated[CatchUp | None, Opt("Missed times for which a job is created; `last` by default.")] = None
    time_zone: Annotated[str | None, Opt("IANA time zone of CRON, such as Europe/Berlin; UTC by default.")] = None
    paused: Annotated[bool, Opt("Store the schedule, but create no jobs.")] = False


@command(schedule, "set")
def set_schedule(
    client: Retrying,
    name: Arg,
    cron: Arg,
    kind: Arg,
    params: MaybeArg = None,
    file: Annotated[BinaryIO | None, Opt("File with the params; - is standard input.")] = None,
    *,
    settings: ScheduleSettings,
) -> Said:
    """Create or change a schedule.

    CRON is `minute hour day month weekday`, or @hourly, @daily, @weekly or @monthly; PARAMS a JSON object, or -.
    """
    source = open_source(None if params == STDIN else params, file, from_stdin=params == STDIN)
    text = None if source is None else read_whole(source)
    told = client.jobs.set_schedule(name, cron, kind, text, **vars(settings)).facts
    following = "It is paused." if settings.paused else f"The next job will be created at {told['next_instant']}."
    return Said(told, f"Scheduled {name}. {following}")


@command(schedule, "list")
def list_schedules(client: Retrying) -> Listing[ScheduleInfo]:
    """List schedules with their last and next time."""
    return Listing(client.jobs.schedules(), SCHEDULE_HEAD, _schedule_row, "There are no schedules.")


def _schedule_row(one: ScheduleInfo) -> tuple[object, ...]:
    facts = one.facts
    following = "paused" if facts["paused"] else facts["next_instant"] or "never"
    return *(facts[name] for name in ("name", "cron", "kind", "queue")), facts["last_instant"] or "none yet", following


@command(schedule, "rm")
def remove_schedule(client: Retrying, name: Arg, sure: Sure) -> Said:
    """Delete a schedule; its jobs stay."""

    def about() -> str:
        one = client.jobs.schedule(name)
        return f"{name} ({one.cron}: {one.kind})"

    if plan := sure.plan({"name": name}, about, "remove", "A deleted schedule creates no more jobs"):
        return plan
    client.jobs.delete_schedule(name)
    return Said({"name": name, "removed": True, "dry_run": False}, f"Removed {name}")
