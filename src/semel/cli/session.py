"""The client of a command: its credential, its retries, and errors as one sentence.

A token is never an argument, because other users of the machine can read arguments.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import click

from semel.cli.output import printable
from semel.client.access import find_token
from semel.client.errors import CallError, InvalidArgumentError, NoAnswerError, SemelError

if TYPE_CHECKING:
    from semel.client import Client

P = ParamSpec("P")
R = TypeVar("R")


def client_of(url: str, token_file: Path | None, retries: int) -> Client:
    """A client with the credential of the command, which repeats a failed call at most `retries` times."""
    from semel.client import Client, Patience  # noqa: PLC0415 - commands without a client do not load its libraries

    token, patience = find_token(os.environ, token_file) or "", Patience(tries=retries + 1, seconds=None)
    return Client(url, token=token, patience=patience, on_retry=retry_notice())


QUIET_SECONDS = 5.0


def retry_notice() -> Callable[[CallError], None]:
    """Called with the error of each failed attempt: tells that the request is repeated, once an outage."""
    failed_at = -QUIET_SECONDS

    def tell(error: CallError) -> None:
        nonlocal failed_at
        now = time.monotonic()
        if now - failed_at >= QUIET_SECONDS:
            click.echo(f"{sentence(error)} Trying again.", err=True)
        failed_at = now

    return tell


def sentence(error: SemelError) -> str:
    """The error as one line that cannot control the terminal."""
    text = str(error)
    if isinstance(error, NoAnswerError) and not error.is_unsettled:
        text = f"{text.removesuffix('.')}: check --url or SEMEL_URL."
        address = error.refused_address
        if address is not None and address.is_loopback:
            port = "" if address.port == 8788 else f" --port {address.port}"
            text = text.partition(" (")[0] + f": start one with `semel serve{port}`, or give another --url."
    return printable(text)


@contextmanager
def advised(advice: str) -> Iterator[None]:
    """Adds advice to the error of a write that may have taken effect."""
    try:
        yield
    except CallError as error:
        if not error.is_unsettled:
            raise
        raise click.ClickException(f"{sentence(error)} {advice}") from error


def translated(command: Callable[P, R], errors: tuple[type[Exception], ...] = ()) -> Callable[P, R]:
    """The command with errors of the client, and the given ones, as one sentence and exit code 1."""

    @functools.wraps(command)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except InvalidArgumentError as error:
            raise click.UsageError(sentence(error)) from error
        except SemelError as error:
            raise click.ClickException(sentence(error)) from error
        except errors as error:
            raise click.ClickException(str(error)) from error

    return call
