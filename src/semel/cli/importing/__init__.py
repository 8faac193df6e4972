"""`semel import`: import the data of another program."""

from __future__ import annotations

import click

from semel.cli.importing.sheratan import sheratan

__all__ = ["importing"]


@click.group("import")
def importing() -> None:
    """Import the data of another program."""


importing.add_command(sheratan)
