"""`semel outbox`: deliver, list, retry and drop the letters of an outbox."""

from __future__ import annotations

import click

from semel.cli.outbox.changes import drop, retry
from semel.cli.outbox.ls import ls
from semel.cli.outbox.run import init, run

__all__ = ["outbox"]


@click.group()
def outbox() -> None:
    """Outbox: requests that are stored first and sent until they are answered."""


for _command in (drop, init, ls, retry, run):
    outbox.add_command(_command)
