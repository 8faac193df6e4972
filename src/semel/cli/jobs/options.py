"""Options of a job's run, for submissions and schedules."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from semel.cli.jobs.asking import Facts

MAX_TIMEOUT_SECONDS = 604_800
"""The longest that a run may be limited to: seven days."""
PRIORITIES = ("critical", "high", "normal", "low")


class PriorityType(click.ParamType[int | str]):
    """0 to 9, or one of four names; which of them there are is the server's to know."""

    name = "priority"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """The number, or the name as it is."""
        text = str(value)
        if text in PRIORITIES:
            return text
        if not (text.isdecimal() and len(text) == 1):
            self.fail(f"a priority is 0 (most urgent) to 9, or {', '.join(PRIORITIES)}.", param, ctx)
        return int(text)


def with_place(command: Callable[..., None]) -> Callable[..., None]:
    """Adds `--queue`, `--priority` and `--max-attempts`."""
    command = click.option(
        "--max-attempts", type=click.IntRange(1, 100), help="Limit of runs, the first one included."
    )(command)
    command = click.option(
        "--priority", type=PriorityType(), metavar="0..9", help="Priority; 0 is the most urgent; 4 by default."
    )(command)
    return click.option("--queue", help="Queue of the job; `default` by default.")(command)


def with_job_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds all of them; the command gets those that were given as one object, named as a server names them."""

    @with_place
    @click.option(
        "--delay",
        type=click.FloatRange(min=0),
        metavar="SECONDS",
        help="Run it no earlier than this time from now, in seconds.",
    )
    @click.option("--run-at", metavar="RFC3339", help="Run it no earlier than this time, such as 2030-01-31T12:00:00Z.")
    @click.option(
        "--lease",
        "lease_sec",
        type=click.IntRange(1, 86_400),
        metavar="SECONDS",
        help="End the lease of a worker without a heartbeat for this time, in seconds.",
    )
    @click.option(
        "--timeout",
        type=click.FloatRange(0, MAX_TIMEOUT_SECONDS),
        metavar="SECONDS",
        help="Time limit of one run in seconds; 0 is no limit; by default that of the queue.",
    )
    @click.option(
        "--on-failed",
        type=click.Choice(["return", "retry"]),
        help="If the job of this key has failed: return it, or retry it.",
    )
    @functools.wraps(command)
    def optional(
        *args: Any,
        queue: str | None,
        priority: int | str | None,
        max_attempts: int | None,
        delay: float | None,
        run_at: str | None,
        lease_sec: int | None,
        timeout: float | None,
        on_failed: str | None,
        **rest: Any,
    ) -> None:
        if delay is not None and run_at is not None:
            raise click.UsageError("Give --delay or --run-at, not both.")
        options = {
            "queue": queue,
            "priority": priority,
            "max_attempts": max_attempts,
            "delay_ms": None if delay is None else round(delay * 1_000),
            "run_at": run_at,
            "lease_sec": lease_sec,
            "timeout_ms": None if timeout is None else round(timeout * 1_000),
            "on_failed": on_failed,
        }
        command(*args, options=given(options), **rest)

    return optional


def given(options: Facts) -> Facts:
    """Those that were given."""
    return {name: value for name, value in options.items() if value is not None}
