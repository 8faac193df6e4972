"""`semel events`: submit, read and follow events from a terminal or a script."""

from __future__ import annotations

import click

from semel.cli.events.read import read, tail
from semel.cli.events.submit import submit
from semel.cli.help import HelpGroup

__all__ = ["events"]


@click.group(cls=HelpGroup)
def events() -> None:
    """Events in partitions, committed once and in one order."""


for _command in (read, submit, tail):
    events.add_command(_command)
