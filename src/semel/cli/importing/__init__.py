"""`semel import`: import the data of another program."""

from __future__ import annotations

import click

from semel.cli.importing.sheratan import sheratan

__all__ = ["importer"]


@click.group("import")
def importer() -> None:
    """Import the data of another program."""


importer.add_command(sheratan)
