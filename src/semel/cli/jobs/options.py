"""The options of a job that is submitted or scheduled, and its draft: kind, params and options in their original text.

Errors that would make a server refuse a whole batch are found here, so that a bad line is named and the others are
sent. Errors of a single job (a kind with a space, a number that a double cannot hold) are left to the server.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import click

from semel.cli.jobs.requests import Facts
from semel.cli.requests import given
from semel.cli.source import members
from semel.kernel.json.parse import parse_marked
from semel.kernel.json.text import MAX_DEPTH, JsonError, depth_of, too_deep

MAX_TIMEOUT_SECONDS = 604_800
"""Maximum time limit of a run: seven days."""
PRIORITIES = ("critical", "high", "normal", "low")


class PriorityType(click.ParamType[int | str]):
    """A priority from 0 to 9, or a name, which the server checks."""

    name = "priority"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """The number, or the name."""
        text = str(value)
        if text in PRIORITIES:
            return text
        if not (text.isdecimal() and len(text) == 1):
            self.fail(f"a priority must be 0 (most urgent) to 9, or {', '.join(PRIORITIES)}.", param, ctx)
        return int(text)


def with_place(command: Callable[..., None]) -> Callable[..., None]:
    """Adds `--queue`, `--priority` and `--max-attempts`."""
    command = click.option(
        "--max-attempts", type=click.IntRange(1, 100), help="Maximum number of runs, including the first."
    )(command)
    command = click.option(
        "--priority", type=PriorityType(), metavar="0..9", help="Priority; 0 is the most urgent; 4 by default."
    )(command)
    return click.option("--queue", help="Queue of the job; `default` by default.")(command)


def with_job_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds all job options; the command gets the given ones as one object with the server's names."""

    @with_place
    @click.option(
        "--delay",
        type=click.FloatRange(min=0),
        metavar="SECONDS",
        help="Delay before the first run, in seconds.",
    )
    @click.option("--run-at", metavar="RFC3339", help="Earliest time of the first run, such as 2030-01-31T12:00:00Z.")
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
        help="If the job of this key has failed: return it as it is, or retry it.",
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


_LINE_LEVELS = MAX_DEPTH + 1
"""The params may have the full depth, and are one level below the object."""

_START = frozenset({"delay_ms", "run_at"})
"""Members that set the start time; a job has at most one of them."""


class CliJobDraftError(Exception):
    """The text cannot be submitted; the message says why."""


class CliJobDraft(NamedTuple):
    """One submission as JSON; `key` makes it safe to retry, if it has one."""

    key: str | None
    text: bytes


def draft_job(kind: str, params: bytes, options: Facts, key: str | None) -> CliJobDraft:
    """A job of a kind, with the text of its params."""
    _object(params, MAX_DEPTH, "The params of a job must be a JSON object.")
    parts = {"kind": json.dumps(kind), "params": params.decode()}
    return _draft(parts, options, key)


def draft_line(raw: bytes, options: Facts, key: str | None) -> CliJobDraft:
    """A job of a line: an object with a kind. Its members win over the options and the key."""
    value = _object(raw, _LINE_LEVELS, "A job must be a JSON object with a kind.")
    own = value.get("idempotency_key")
    parts = {name: text for name, text in members(raw.decode()).items() if name != "idempotency_key" or own is not None}
    if own is None:
        return _draft(parts, options, key)
    # The server refuses a key that is not a string, and a refused job can be sent again.
    return _draft(parts, options, None)._replace(key=str(own))


def _draft(parts: dict[str, str], options: Facts, key: str | None) -> CliJobDraft:
    named = parts.keys() | (_START if parts.keys() & _START else frozenset())
    added = {name: json.dumps(value) for name, value in options.items() if name not in named}
    if key is not None:
        added["idempotency_key"] = json.dumps(key)
    text = ",".join(f"{json.dumps(name)}:{value}" for name, value in {**parts, **added}.items())
    return CliJobDraft(key, f"{{{text}}}".encode())


def _object(raw: bytes, levels: int, sentence: str) -> dict[str, Any]:
    """The value of a text that is a JSON object, read as strictly as a server reads it."""
    if depth_of(raw) > levels:
        raise CliJobDraftError(str(too_deep()))
    try:
        value = parse_marked(raw, levels).value
    except JsonError as error:
        raise CliJobDraftError(str(error)) from None
    if not isinstance(value, dict):
        raise CliJobDraftError(sentence)
    return value
