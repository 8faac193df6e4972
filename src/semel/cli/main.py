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
    "audit": "semel.cli.audit:audit",
    "copy": "semel.cli.store:copy",
    "deltas": "semel.cli.deltas:deltas",
    "diagnose": "semel.cli.diagnose:diagnose",
    "doctor": "semel.cli.doctor:doctor",
    "epoch": "semel.cli.epoch:epoch",
    "events": "semel.cli.events:events",
    "import": "semel.cli.importer:importer",
    "jobs": "semel.cli.jobs:jobs",
    "ledger": "semel.cli.ledger:ledger",
    "migrate": "semel.cli.store:migrate",
    "once": "semel.cli.once:once",
    "outbox": "semel.cli.outbox:outbox",
    "proxy": "semel.cli.proxy:proxy",
    "serve": "semel.cli.serve:serve",
    "streams": "semel.cli.streams:streams",
    "worker": "semel.cli.worker:worker",
}
"""The module and the name of each subcommand."""


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
