"""`semel once`: the table of receipts in a database of your own."""

from __future__ import annotations

import click

from semel.cli.once.table import init, sweep

__all__ = ["once"]


@click.group()
def once() -> None:
    """The receipts of semel.once in your own database."""


for _command in (init, sweep):
    once.add_command(_command)
