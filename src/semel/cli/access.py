"""Connection options: server URL and token file. A token is never an argument, because other users can see those."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

import click

from semel.cli.address import DEFAULT_URL, Address, AddressType
from semel.cli.connection import Connection

P = ParamSpec("P")


def with_connection(command: Callable[Concatenate[Connection, P], None]) -> Callable[..., None]:
    """Adds `--url` and `--token-file`, and hands the command its connection."""

    @click.option("--url", type=AddressType(), envvar="SEMEL_URL", default=DEFAULT_URL, help=_URL_HELP)
    @click.option(
        "--token-file", type=click.Path(path_type=Path), help="File with the bearer token; SEMEL_TOKEN by default."
    )
    @functools.wraps(command)
    def connected(*args: Any, url: Address, token_file: Path | None, **rest: Any) -> None:
        with closing(Connection(url, find_token(token_file))) as connection:
            command(connection, *args, **rest)

    return connected


_URL_HELP = f"Where the server is.  [SEMEL_URL; {DEFAULT_URL}]"


def find_token(file: Path | None) -> str | None:
    """The token to send, if there is one; the file goes before the environment."""
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
    """Refuses what no header can carry, here, because the error of the HTTP library would show the token."""
    if not token.isascii() or not token.isprintable() or " " in token:
        raise click.ClickException(f"{place} does not hold one token: it has spaces, line ends or special characters.")
    return token
