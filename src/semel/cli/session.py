"""The client of a command: options of the server, credential, retries, and errors as one sentence.

A token is never an argument, because other users of the machine can read arguments.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import click

from semel.cli.output import printable
from semel.client import Client, Patience
from semel.client.access import DEFAULT_URL, find_access
from semel.client.errors import CallError, ConfigurationError, InvalidArgumentError, NoAnswerError, SemelError

P = ParamSpec("P")
R = TypeVar("R")


class UrlType(click.ParamType[str]):
    """An option that takes a server's URL."""

    name = "url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The URL, or a usage error."""
        try:
            return find_access({}, str(value)).url
        except ConfigurationError as error:
            self.fail(str(error), param, ctx)


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """The server and the credential that a command names."""

    url: str
    token_file: Path | None

    @staticmethod
    def params() -> list[click.Parameter]:
        """`--url` and `--token-file`."""
        url_help = f"URL of the server.  [SEMEL_URL; {DEFAULT_URL}]"
        file_help = "File with the bearer token; SEMEL_TOKEN by default."
        return [
            click.Option(["--url"], type=UrlType(), envvar="SEMEL_URL", default=DEFAULT_URL, help=url_help),
            click.Option(["--token-file"], type=click.Path(path_type=Path), help=file_help),
        ]

    @classmethod
    def taken(cls, values: dict[str, Any]) -> ClientOptions:
        """The options of the server, removed from the values of a command."""
        return cls(values.pop("url"), values.pop("token_file"))

    def client(self, retries: int) -> Client:
        """A client that retries so often, and tells of the first failure."""
        notice = RetryNotice()
        return Client(
            self.url,
            token=find_token(self.token_file) or "",
            patience=Patience(tries=retries + 1, seconds=None),
            on_retry=notice.tell,
        )


QUIET_SECONDS = 5.0


class RetryNotice:
    """Tells that a request is repeated, once an outage."""

    def __init__(self) -> None:
        self._failed_at = -QUIET_SECONDS

    def tell(self, error: CallError) -> None:
        """Print the error, unless the one before it was a short time ago."""
        now = time.monotonic()
        if now - self._failed_at >= QUIET_SECONDS:
            click.echo(f"{sentence(error)} Trying again.", err=True)
        self._failed_at = now


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
    """Refuse a token that a header cannot contain, without showing it."""
    if not token.isascii() or not token.isprintable() or " " in token:
        raise click.ClickException(f"{place} must hold one token: remove spaces, line breaks and non-ASCII characters.")
    return token


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


def translated(command: Callable[P, R]) -> Callable[P, R]:
    """The command with errors of the client as one sentence and exit code 1."""

    @functools.wraps(command)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except InvalidArgumentError as error:
            raise click.UsageError(sentence(error)) from error
        except SemelError as error:
            raise click.ClickException(sentence(error)) from error

    return call
