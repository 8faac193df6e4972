"""`semel console`: a browser with the console, signed in with the credential of the command.

The link works once and for a minute. Other users of the machine can read the arguments of a browser that is started,
so the browser is given a file that only this user can read, and that leads to the link.
"""

from __future__ import annotations

import html
import os
import sys
import tempfile
import time
import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import click

from semel.cli.command import Opt, command
from semel.cli.output import Said, printable
from semel.cli.session import sentence
from semel.client import Client
from semel.client.errors import RefusedError

FILE_PREFIX, FILE_SUFFIX = "semel-console-", ".html"
KEPT_SECONDS = 120
"""A file of an earlier run is deleted after this time: its link is over, and the browser has read it."""
DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
"""Without any of these, a Linux machine has only browsers for the terminal, which run no JavaScript."""
_OTHER_PORT = "WRONG_PLANE"
_UNAUTHORIZED = 401


@command()
def console(
    client: Client, no_open: Annotated[bool, Opt("Print the link, and open no browser.", "--no-open")] = False
) -> Said:
    """Open the console in a browser, signed in.

    The browser has the rights of the credential of this command, for 8 hours at most. The link works once, within 60
    seconds. Without a browser on this machine it is printed. A server in development mode needs no link: the console is
    opened as it is.
    """
    try:
        link = client.server.console_link()
    except RefusedError as error:
        raise click.ClickException(_advice(error)) from error
    url = link.url(client.access.url)
    if not no_open and _can_open() and _opened(url):
        told = f"Opened {_without_code(url)} in a browser. If no page appears, run: semel console --no-open"
        return Said({"url": _without_code(url), "opened": True, "expires_at": link.expires_at}, told)
    if link.code is not None:
        click.echo(f"This link works once, for the first browser that opens it, until {link.expires_at}:", err=True)
    return Said({"url": url, "opened": False, "expires_at": link.expires_at}, url)


def _advice(error: RefusedError) -> str:
    if error.code == _OTHER_PORT:
        return "The console is on the control listener of this server: give the URL of that with --url."
    if error.status == _UNAUTHORIZED:
        said = printable(str(error.facts.get("detail", error)))
        return f"{said.removesuffix('.')}: give a valid token in SEMEL_TOKEN or --token-file."
    return sentence(error)


def _without_code(url: str) -> str:
    """The address of the console without the code of a link."""
    return url.partition("#")[0]


def _can_open() -> bool:
    return sys.platform != "linux" or any(os.environ.get(name) for name in DISPLAYS)


def _opened(url: str) -> bool:
    """Whether a browser was started; it opens a link with a code by way of a file."""
    try:
        return webbrowser.open(url if "#" not in url else _file_of(url).as_uri())
    except (webbrowser.Error, OSError):
        return False


def _file_of(url: str) -> Path:
    """A new file that leads a browser to the link; only this user can read it."""
    folder = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    for old in folder.glob(f"{FILE_PREFIX}*{FILE_SUFFIX}"):
        with suppress(OSError):  # that of another user
            if old.stat().st_mtime < time.time() - KEPT_SECONDS:
                old.unlink()
    number, name = tempfile.mkstemp(FILE_SUFFIX, FILE_PREFIX, folder)
    os.close(number)
    Path(name).write_text(
        '<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer"><title>Semel</title>'
        f'<meta http-equiv="refresh" content="0; url={html.escape(url)}">',
        "utf-8",
    )
    return Path(name)
