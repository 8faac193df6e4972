"""`semel streams`: create, write, read and remove streams from a terminal or a script."""

from __future__ import annotations

import click

from semel.cli.help import HelpGroup
from semel.cli.streams.admin import create, ls, rm
from semel.cli.streams.append import append
from semel.cli.streams.read import read, tail

__all__ = ["streams"]


@click.group(cls=HelpGroup)
def streams() -> None:
    """Append-only logs that readers can follow."""


for _command in (append, create, ls, read, rm, tail):
    streams.add_command(_command)
