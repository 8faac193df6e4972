"""Requests of all commands: server options, retries, idempotency keys and server-sent events.

A token is never an argument, because other users of the machine can read arguments. A request with an identity is
retried until it is answered; one without an identity only after an answer that says that it had no effect.

In a server-sent event, everything after `data:` is content: the server sends no space before it. An event counts when
the empty line after it has arrived; a truncated event is ignored.
"""

from __future__ import annotations

import functools
import os
import random
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import click

from semel.cli.connection import DEFAULT_URL, AddressType, CliAddress, CliConnection, RequestError
from semel.cli.output import Command
from semel.kernel.keys import time_ordered_uuid

P = ParamSpec("P")


def with_connection(command: Callable[Concatenate[CliConnection, P], None]) -> Callable[..., None]:
    """Adds `--url` and `--token-file`, and passes the connection to the command."""

    @click.option("--url", type=AddressType(), envvar="SEMEL_URL", default=DEFAULT_URL, help=_URL_HELP)
    @click.option(
        "--token-file", type=click.Path(path_type=Path), help="File with the bearer token; SEMEL_TOKEN by default."
    )
    @functools.wraps(command)
    def connected(*args: Any, url: CliAddress, token_file: Path | None, **rest: Any) -> None:
        with closing(CliConnection(url, find_token(token_file))) as connection:
            command(connection, *args, **rest)

    return connected


_URL_HELP = f"URL of the server.  [SEMEL_URL; {DEFAULT_URL}]"


def find_token(file: Path | None) -> str | None:
    """The token of the file, else of the environment, or None."""
    if file is None:
        return _checked(os.environ.get("SEMEL_TOKEN", "").strip(), "SEMEL_TOKEN") or None
    try:
        token = file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise click.ClickException(f"The token file {file} cannot be read: {reason}.") from None
    if not token:
        raise click.ClickException(f"The token file {file} is empty.")
    return _checked(token, f"The token file {file}")


def _checked(token: str, place: str) -> str:
    """Refuse a token that a header cannot contain. The error of the HTTP library would show the token."""
    if not token.isascii() or not token.isprintable() or " " in token:
        raise click.ClickException(f"{place} must hold one token: remove spaces, line breaks and non-ASCII characters.")
    return token


RETRIES = 6
FIRST_SECONDS = 0.1
LONGEST_SECONDS = 3.0
MOST_PATIENCE_SECONDS = 60.0

Told = TypeVar("Told")


def send_until_answered(send: Callable[[], Told], retries: int, *, has_identity: bool = True) -> Told:
    """The first answer, else the last error, marked unsettled if any attempt may have taken effect."""
    unsettled = False
    for tried in range(retries + 1):
        try:
            return send()
        except RequestError as error:
            unsettled = unsettled or error.is_unsettled
            if tried == retries or not error.may_pass or (error.is_unsettled and not has_identity):
                error.is_unsettled = unsettled and error.may_pass
                raise
            if tried == 0:
                click.echo(f"{error.message} Trying again.", err=True)
            time.sleep(pause_seconds(tried, error.wait_seconds))
    raise AssertionError("the last attempt returns or raises")


def pause_seconds(tried: int, asked_seconds: float = 0.0) -> float:
    """Exponential backoff with jitter, in seconds."""
    own = min(LONGEST_SECONDS, FIRST_SECONDS * 2.0 ** min(tried, 16))
    chance = random.uniform(0.75, 1.25)  # noqa: S311 - not a secret
    return max(own * chance, min(asked_seconds, MOST_PATIENCE_SECONDS))


def with_retries(command: Command) -> Command:
    """Adds `--retries`."""
    kind = click.IntRange(min=0)
    return click.option(
        "--retries", type=kind, default=RETRIES, show_default=True, help="Maximum retries of a failed request."
    )(command)


def given(options: dict[str, Any]) -> dict[str, Any]:
    """The options that are not None."""
    return {name: value for name, value in options.items() if value is not None}


def fresh_key() -> str:
    """A unique key in lower case; keys sort by creation time."""
    return time_ordered_uuid(time.time_ns() // 1_000_000, secrets.token_bytes(10))


def line_key(base: str, line: int | str) -> str:
    """The key of one line of an import, the same in every run."""
    return f"{base}-{line}"


class ServerSentEvent(NamedTuple):
    """One complete event."""

    kind: str
    data: bytes


def parse_events(lines: Iterable[bytes]) -> Iterator[ServerSentEvent]:
    """The events of these lines; comments and unknown fields are ignored."""
    kind, data = "", list[bytes]()
    for line in lines:
        field, _, value = line.rstrip(b"\r\n").partition(b":")
        if field == b"event":
            kind = value.strip().decode("ascii", "replace")
        elif field == b"data":
            data.append(value)
        elif line in (b"\n", b"\r\n"):
            if data:
                yield ServerSentEvent(kind, b"\n".join(data))
            kind, data = "", []
