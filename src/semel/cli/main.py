"""The root command: its subcommands are modules of their own, imported on demand.

So `semel --version`, and every command that only talks to a server, starts without the server's libraries.
"""

from __future__ import annotations

import io
import os
import sys

import click

from semel import __version__
from semel.cli.lazy import LazyGroup

_HOMES = {
    "audit": "semel.cli.audit",
    "copy": "semel.cli.copy",
    "deltas": "semel.cli.deltas",
    "diagnose": "semel.cli.diagnose",
    "doctor": "semel.cli.doctor",
    "epoch": "semel.cli.epoch",
    "events": "semel.cli.events",
    "import": "semel.cli.importing",
    "jobs": "semel.cli.jobs",
    "ledger": "semel.cli.ledger",
    "migrate": "semel.cli.migrate",
    "once": "semel.cli.once",
    "outbox": "semel.cli.outbox",
    "proxy": "semel.cli.proxy",
    "serve": "semel.cli.serve",
    "streams": "semel.cli.streams",
    "worker": "semel.cli.worker",
}
"""The module of each subcommand."""


@click.group(cls=LazyGroup, homes=_HOMES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="semel")
@click.pass_context
def main(context: click.Context) -> None:
    """Every write happens once, however often it is retried."""
    if os.environ.get("NO_COLOR"):
        context.color = False
    # A stream's name may have letters that the terminal's encoding lacks: show their codes instead of failing.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
