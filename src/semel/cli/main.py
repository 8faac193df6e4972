"""The root of the command: its subcommands are small modules of their own."""

from __future__ import annotations

import click

from semel import __version__
from semel.cli.serve import serve


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="semel")
def main() -> None:
    """Every write happens once, however often it is retried."""


main.add_command(serve)
