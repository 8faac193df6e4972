"""`semel serve`: run a server."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from semel.server.principals import TokenFileError
from semel.server.process import run_server
from semel.server.settings import PREFIX, Settings, SettingsError, load_settings
from semel.store.protocol import StoreError

_HIDDEN = frozenset({"crash_point", "crash_one_in", "commit_delay_ms"})

TRY_NEXT = """\
Semel is listening on {url} ({mode}).

Try, in another terminal:
  semel streams create greetings --type application/json
  semel streams append greetings '{{"hello": "world"}}' --key first
  semel streams append greetings '{{"hello": "world"}}' --key first     # the same answer; nothing is stored twice
  semel streams tail greetings --from-start
or:
  curl -i -X PUT {url}/v1/stream/orders -H 'Content-Type: application/json'
  curl -i {url}/v1/stream/orders -H 'Content-Type: application/json' -H 'Idempotency-Key: 1' -d '{{"n": 1}}'
"""


def _with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """One flag for each setting; unset flags leave room for the environment and the file."""
    for one in reversed(fields(Settings)):
        flag = "--" + one.name.replace("_", "-")
        about = f"{one.metadata['about']}  [{PREFIX}{one.name.upper()}; {_shown(one.default)}]"
        hidden = one.name in _HIDDEN
        if one.type == "bool":
            decorate = click.option(flag, one.name, is_flag=True, default=None, help=about, hidden=hidden)
        else:
            decorate = click.option(flag, one.name, default=None, help=about, hidden=hidden, metavar="VALUE")
        command = decorate(command)
    return command


def _shown(default: object) -> str:
    return "empty" if default == "" else str(default)


@click.command(context_settings={"max_content_width": 120})
@click.option("--config", type=click.Path(path_type=Path), envvar="SEMEL_CONFIG", help="TOML file with settings")
@_with_settings
def serve(config: Path | None, **flags: Any) -> None:
    """Run a server: by default on 127.0.0.1:8788, with an embedded database in ./data."""
    try:
        settings = load_settings(flags, os.environ, config)
        mode = "tokens required" if settings.tokens else "development mode, no credentials"
        kept = settings.store or f"data in {Path(settings.data).resolve()}"

        def announce(url: str) -> None:
            click.echo(TRY_NEXT.format(url=url, mode=f"{mode}; {kept}"), err=False)
            sys.stdout.flush()

        code = run_server(settings, announce)
    except (SettingsError, TokenFileError, StoreError) as error:
        raise click.ClickException(str(error)) from error
    sys.exit(code)
