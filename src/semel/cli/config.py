"""`semel config`: the settings of a server with their origins, and whether a server would start with them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from semel.cli.command import group
from semel.cli.help import ExplainedCommand
from semel.cli.output import printable
from semel.cli.serve import with_settings
from semel.server.settings_report import SettingLine, SettingSources, setting_faults, setting_lines

config = group("config", "The settings of a server.")

_Run = Callable[..., None]


def _command(run: _Run) -> _Run:
    """Add a command that takes the sources of a server's settings: `--config`, and the flags of `semel serve`."""
    run = with_settings(run)
    run = click.option("--json", "as_json", is_flag=True, help="Print JSON.")(run)
    file = click.Path(path_type=Path)
    run = click.option(
        "--config", "file", type=file, envvar="SEMEL_CONFIG", help="TOML file with settings.  [SEMEL_CONFIG]"
    )(run)
    return config.command(cls=ExplainedCommand, entries={})(run)


@_command
@click.option("--changed", is_flag=True, help="Leave out the settings that have their default.")
def show(file: Path | None, as_json: bool, changed: bool, **flags: Any) -> None:
    """Print every setting: its value, and whether it is from a default, the file, the environment or a flag.

    It takes every flag of `semel serve`. Secrets and the password of a store are not shown.
    """
    lines = setting_lines(SettingSources(flags, os.environ, file))
    lines = [line for line in lines if not changed or line.origin != "default"]
    if as_json:
        click.echo(json.dumps([line._asdict() for line in lines]))
        return
    names = max((len(line.name) for line in lines), default=0)
    for line in lines:
        click.echo(printable(f"{line.name:{names}}  {_value(line)}  ({_origin(line)})"))


@_command
def check(file: Path | None, as_json: bool, **flags: Any) -> None:
    """Check whether a server would start with these settings, without starting it.

    It takes every flag of `semel serve`, and checks names, values, files, ports, the data folder and the store. Exits
    with 1 if there is a problem, and lists all of them.
    """
    faults = list(setting_faults(SettingSources(flags, os.environ, file)))
    if as_json:
        click.echo(json.dumps({"ok": not faults, "problems": faults}))
    else:
        for fault in faults:
            click.echo(printable(fault))
        click.echo("A server would start with these settings." if not faults else _summary(len(faults)))
    sys.exit(1 if faults else 0)


def _summary(count: int) -> str:
    return "There is 1 problem." if count == 1 else f"There are {count} problems."


def _value(line: SettingLine) -> str:
    if isinstance(line.value, bool):
        return "true" if line.value else "false"
    return "-" if line.value == "" else str(line.value)


def _origin(line: SettingLine) -> str:
    return line.origin if line.origin == "default" else f"{line.origin}: {line.place.removeprefix('in ')}"
